"""Gates, channels and the flow of whole jobs: pure."""
