"""Stateful steps: what runs per micro-batch and subtask."""
