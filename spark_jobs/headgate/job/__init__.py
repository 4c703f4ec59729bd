"""Job, its graph, and the plan that a graph becomes."""
