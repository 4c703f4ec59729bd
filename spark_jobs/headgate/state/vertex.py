"""A stateful vertex as those see it who snapshot and restore it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate_contract.ids import VertexUid


@dataclass(frozen=True, kw_only=True)
class StatefulVertex:
    """What a snapshot says of a stateful vertex besides its files."""

    uid: VertexUid
    name: str
    parallelism: int
    max_parallelism: int
    backend: str
    directory: Path
