"""The only place that imports pyspark for the engine."""
