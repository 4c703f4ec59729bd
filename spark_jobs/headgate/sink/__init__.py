"""Where records go: two-phase commit, staged by the step's own task."""
