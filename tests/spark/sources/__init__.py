"""Each source on real Spark: read, position, fresh checkpoint folder seeded at a position, read on."""
