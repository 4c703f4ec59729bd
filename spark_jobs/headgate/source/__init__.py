"""Where records come from, and their positions."""
