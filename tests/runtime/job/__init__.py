"""Jobs: the graph that an author builds, the plan that it becomes, the file that holds it, and its check."""
