"""The sinks: what becomes visible, when, and what happens when somebody dies in between."""
