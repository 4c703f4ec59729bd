"""What only real Spark shows."""
