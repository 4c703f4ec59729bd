"""The way from a connection, or from streams.yaml, to the control plane of a storage root."""
