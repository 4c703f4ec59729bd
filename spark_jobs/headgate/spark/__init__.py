"""The only place that imports pyspark for the engine: session, streaming queries, shuffle, mapInArrow."""
