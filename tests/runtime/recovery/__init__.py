"""Restore: files verified by name, state at any parallelism and backend, sinks told what they must know."""
