"""Tests of headgate.testing.simulation, and with it."""
