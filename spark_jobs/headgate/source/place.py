"""Where in the sources a micro-batch stands that has failed, and whether another one stands there too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

PARTS_TOLD = 100
"""So many files of a micro-batch are named where it is told to others: what shares one of them begins there too."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A range of a source, or what waited in a channel."""

    where: str
    """Like `source 'records'`."""
    source: str = ""
    """The uid of the source whose records they are, or were made of."""
    parts: tuple[str, ...] = ()
    """What it consists of, if that has names: the files."""
    since: Mapping[Any, Any] | None = None
    """The source's position before it."""
    until: str = ""
    """Where it ends, as the source says it."""
    count: int = 0
    """How many parts there are, if not all of them are named."""
    behind: Mapping[Any, Mapping[str, Any]] | None = None
    """Of what waited in a channel: where each source stood when the life began."""
    found: str = ""
    """The record itself, if it could be found."""

    def is_at(self, other: Place) -> bool:
        """Whether the two may have failed of the same record: where micro-batches end is not the same each time."""
        if self.where != other.where:
            return False
        if not set(self.parts).isdisjoint(other.parts):
            return True
        if self.behind is not None and self.behind == other.behind:
            return True
        return not (self.parts and other.parts) and self.since is not None and self.since == other.since

    def encode(self) -> str:
        """For what is made of these records, by which it says where they come from."""
        told = {"where": self.where, "parts": self.parts[:PARTS_TOLD], "count": self.size, "until": self.until}
        return json.dumps({**told, "source": self.source, "since": self.since})

    @classmethod
    def decode(cls, text: str) -> Place:
        told = json.loads(text)
        return cls(**{**told, "parts": tuple(told["parts"])})

    @property
    def size(self) -> int:
        """How many parts it has."""
        return max(self.count, len(self.parts))

    def __str__(self) -> str:
        told = [self.where]
        if self.found:
            told.append(self.found)
        if self.behind is not None and self.since is None:
            told += [f"{_stands(position)} of source {uid!r}" for uid, position in sorted(self.behind.items())]
        elif self.size == 1:
            told.append(f"in {shown(self.parts[0])}")
        elif self.parts:
            last = f"to {shown(self.parts[-1])}" if self.size == len(self.parts) else "on"
            told.append(f"in one of {self.size} files from {shown(self.parts[0])} {last}")
        told.append(self._positions())
        return ", ".join(filter(None, told))

    def _positions(self) -> str:
        since = self.since or {}
        if "count" in since or (since.get("initial") and self.parts):
            before = int(since.get("count", 0))
            if self.size <= 1:
                return f"its file {before + 1}" if self.parts else ""
            return f"its files {before + 1} to {before + self.size}"
        offset = since.get("offset")
        begin = f"behind {offset}" if offset else "from its beginning" if since.get("initial") else ""
        return f"{begin} up to {self.until}" if begin and self.until else begin


def _stands(position: Mapping[str, Any]) -> str:
    if position.get("initial"):
        return "from the beginning"
    return f"behind file {position['count']}" if "count" in position else f"behind {position.get('offset')}"


def shown(path: str) -> str:
    """A file's URL as people write it, on one line."""
    name = unquote(path).removeprefix("file://") if path.startswith("file:") else path
    return name if name.isprintable() else repr(name)
