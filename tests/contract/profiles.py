"""How much hypothesis tries: the same in every run, and little enough for the pure tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)
FEW = settings(PROPERTY, max_examples=12)
"""For what is large to make: whole records."""

MACHINE = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
