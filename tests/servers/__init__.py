"""Against local servers that a fixture starts and stops."""
