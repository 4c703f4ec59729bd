"""Streams under fire: input with a known truth, a killer, and a checker that shares no code with Headgate."""
