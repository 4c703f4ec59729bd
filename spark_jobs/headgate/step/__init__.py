"""Stateful steps: what runs for each micro-batch and subtask, in the task."""
