"""Restore: a snapshot becomes working state, source positions and sinks that stand where it stands."""
