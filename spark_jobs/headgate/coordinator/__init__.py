"""Triggers, pending and completed checkpoints; holds no policy of its own."""
