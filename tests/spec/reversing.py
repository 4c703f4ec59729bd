"""How a behaviour is reversed: its switch, by its number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Reversal:
    number: int
    does: str
    switch: Callable[[Patch], None]


REVERSALS: dict[int, Reversal] = {}


def reverses(number: int, does: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Marks the switch of a behaviour; `does` says what is done instead."""

    def note(switch: Callable[[Patch], None]) -> Callable[[Patch], None]:
        if number in REVERSALS:
            raise AssertionError(f"F{number} has two switches")
        REVERSALS[number] = Reversal(number, does, switch)
        return switch

    return note


def everywhere(patch: Patch, function: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Replace a function in every module that has imported it, the tests' own too."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                patch.setattr(module, name, instead)
