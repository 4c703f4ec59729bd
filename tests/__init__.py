"""Headgate's tests; their names are the specification."""
