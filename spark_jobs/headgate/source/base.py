"""What a source is to a job's author and to the plan: a frozen description; the engine reads by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Source(ABC):
    """A description of a source. Making one does no I/O."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """`exactly-once` if every record can be read again from a position, else `at-most-once`."""

    @property
    def bounded(self) -> bool:
        """Whether it ends, when it has handed over all that there is when a life begins."""
        return False

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The source as plain data, for the plan; without secrets."""
