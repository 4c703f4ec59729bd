"""The coordinator: its laws under random histories, and Flink's examples."""
