"""Channels and barrier alignment between vertices; a linear job is one chain and has none."""
