"""Checkpoints: triggers, pending, acks, completed. Pure: events in, actions out; knows participants only by name."""
