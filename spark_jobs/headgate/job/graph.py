"""The graph that a job's author builds: vertices as frozen values, checked where they are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate_contract.ids import VertexUid

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.sink.base import Sink
    from headgate.source.base import Source
    from headgate.step.connected import ConnectedOperator
    from headgate.step.operators import KeyedOperator

# `new_chain`: an author wants it to go at a pace of its own, behind a channel.
ArrowFunction = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


@dataclass(frozen=True, slots=True)
class SourceVertex:
    uid: VertexUid
    name: str
    source: Source
    inputs: tuple[VertexUid, ...] = ()
    former_uids: tuple[VertexUid, ...] = ()

    @property
    def storage_uid(self) -> VertexUid:
        """What it is called on storage, where nothing is renamed: its first uid."""
        return first_uid(self.uid, self.former_uids)


@dataclass(frozen=True, slots=True)
class TransformVertex:
    """DataFrame code: runs in the JVM, before the keyed shuffle, and must not keep state there."""

    uid: VertexUid
    name: str
    function: Callable[[Any], Any]
    inputs: tuple[VertexUid, ...]
    new_chain: bool = False


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column says when a record was made, and what follows from it."""

    column: str
    delay_ms: int
    """How much later than others a record may come."""
    idle_after_ms: int | None = None
    """A source that is silent for so long holds up nobody."""


@dataclass(frozen=True, slots=True)
class WatermarkVertex:
    """Changes no record: the sources before it tell from here on how far event time has come."""

    uid: VertexUid
    name: str
    time: EventTime
    inputs: tuple[VertexUid, ...]
    new_chain: bool = False


@dataclass(frozen=True, slots=True)
class KeyedVertex:
    """A stateful step over the key groups of `keys`."""

    uid: VertexUid
    name: str
    keys: tuple[str, ...]
    operator: KeyedOperator
    inputs: tuple[VertexUid, ...]
    former_uids: tuple[VertexUid, ...] = ()
    new_chain: bool = False


@dataclass(frozen=True, slots=True)
class ArrowVertex:
    """An Arrow function behind a step, in the same task."""

    uid: VertexUid
    name: str
    function: ArrowFunction
    inputs: tuple[VertexUid, ...]
    new_chain: bool = False


@dataclass(frozen=True, slots=True)
class SinkVertex:
    uid: VertexUid
    name: str
    sink: Sink
    inputs: tuple[VertexUid, ...]
    former_uids: tuple[VertexUid, ...] = ()
    new_chain: bool = False

    @property
    def storage_uid(self) -> VertexUid:
        """What it is called on storage, where nothing is renamed: its first uid."""
        return first_uid(self.uid, self.former_uids)


@dataclass(frozen=True, slots=True)
class UnionVertex:
    """The records of several streams of one schema, in no order between them."""

    uid: VertexUid
    name: str
    inputs: tuple[VertexUid, ...]


@dataclass(frozen=True, slots=True)
class ConnectedVertex:
    """A stateful step over two inputs that share their keys' state; the second may be broadcast."""

    uid: VertexUid
    name: str
    keys: tuple[tuple[str, ...], tuple[str, ...] | None]
    """Of each input; None: it is broadcast."""
    operator: ConnectedOperator
    inputs: tuple[VertexUid, VertexUid]
    former_uids: tuple[VertexUid, ...] = ()


def first_uid(uid: VertexUid, former: tuple[VertexUid, ...]) -> VertexUid:
    """The uid that a vertex had first; `former` names the others, oldest first."""
    return former[0] if former else uid


Vertex = (
    SourceVertex
    | TransformVertex
    | WatermarkVertex
    | KeyedVertex
    | ArrowVertex
    | SinkVertex
    | UnionVertex
    | ConnectedVertex
)
