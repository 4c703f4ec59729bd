"""What one simulation was made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """What one simulation was made of."""

    seed: int
    turns: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    """The steps of life-cycles, by name."""
    seen: Counter[str] = field(default_factory=Counter)
    broken: str | None = None
    """The law that was broken."""
    trace: tuple[str, ...] = ()
    """How it came to that: the last turns."""
