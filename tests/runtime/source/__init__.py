"""Sources without Spark: positions, the log of lines, and what fills it."""
