"""Which groups of a file sink count: the log of lives, one record for each start, created exclusively.

A restore that goes back behind published groups retracts all of them in the one moment in which its record is created,
and a later one reinstates them likewise; files follow. A group's place is 1 when it is published; each life that finds
it on the wrong side of its lineage moves it on by one: even places are hidden, odd ones visible.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from headgate.sink.files_layout import PUBLISHED, SinkLayout
from headgate_contract.errors import Fenced, SinkFailed, SlotTaken
from headgate_contract.ids import CheckpointId, Generation, SlotNumber
from headgate_contract.log import ExclusiveLog
from headgate_contract.paths import number_of
from headgate_contract.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Span:
    """The ids from `first` to `last`, all at one place."""

    first: int
    last: int
    place: int


@dataclass(frozen=True, slots=True)
class Life:
    """What counts from one start on. It holds everything: older records need not be read."""

    TYPE: ClassVar[str] = "life"
    generation: Generation
    known: int
    """No group that existed at this start has a higher id; all higher ones are born later."""
    moved: tuple[Span, ...]
    """The ids that were ever retracted, in order; all others are where they were published."""
    history: str = ""
    """Whose folder it is: a stream's name comes again on another root, its history does not. Older records lack it."""

    def place(self, group: CheckpointId) -> int:
        at = bisect_right(self.moved, int(group), key=lambda span: span.first)
        return self.moved[at - 1].place if at and group <= self.moved[at - 1].last else PUBLISHED


UNBORN = Life(Generation(1), 0, ())
"""What holds before the first life has begun."""


def next_life(last: Life, generation: Generation, lineage: Iterable[CheckpointId], known: int) -> Life:
    """The life that follows `last` and stands on `lineage`, where `known` is the highest id that there is."""
    known = max(known, last.known)
    visible = _runs(sorted(id for id in lineage if id <= known))
    starts = {1, known + 1}
    for first, end in visible:
        starts |= {first, end + 1}
    for span in last.moved:
        starts |= {span.first, span.last + 1}
    cuts = sorted(start for start in starts if start <= known + 1)
    spans: list[Span] = []
    run = 0
    for first, after in itertools.pairwise(cuts):
        while run < len(visible) and visible[run][1] < first:
            run += 1
        wanted = run < len(visible) and visible[run][0] <= first
        place = last.place(CheckpointId(first))
        _extend(spans, Span(first, after - 1, place if (place % 2 == 1) == wanted else place + 1))
    return Life(generation, known, tuple(span for span in spans if span.place != PUBLISHED), last.history)


def _runs(ids: list[CheckpointId]) -> list[tuple[int, int]]:
    """Sorted ids as runs without a gap."""
    runs: list[tuple[int, int]] = []
    for id in ids:
        if runs and id <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], int(id))
        else:
            runs.append((int(id), int(id)))
    return runs


def _extend(spans: list[Span], span: Span) -> None:
    """Append `span`, or make the last one longer if it is at the same place."""
    if spans and spans[-1].place == span.place:
        spans[-1] = Span(spans[-1].first, span.last, span.place)
    else:
        spans.append(span)


class Lives:
    """The log of lives of one sink. Not for use by several threads at once."""

    def __init__(self, store: ObjectStore, layout: SinkLayout, generation: Generation, history: str) -> None:
        self._store = store
        self._layout = layout
        self._generation = generation
        self._history = history
        self._log: ExclusiveLog[Life] = ExclusiveLog(store, layout.lives, "manifest", Life)
        self._newest: SlotNumber | None = None
        self._looked = False

    def newest(self) -> Life:
        """The newest life, looked up anew. Raises SinkFailed if it is of another history."""
        if not self._looked:
            numbers = [number_of(info.path) for info in self._store.list(self._layout.lives)]
            self._newest = max((number for number in numbers if number is not None), default=None)
            self._looked = True
        while self._log.peek(self._following()) is not None:
            self._newest = self._following()
        slot = None if self._newest is None else self._log.peek(self._newest)
        life = UNBORN if slot is None else slot.record
        if life.history not in ("", self._history):
            raise foreign(self._store, self._layout, f"{self._layout.lives} says that it belongs to", life.generation)
        return life

    def check_newest(self) -> Life:
        """The newest life. Raises Fenced if a newer generation's is among those that have begun."""
        life = self.newest()
        if life.generation > self._generation:
            raise fenced(self._layout, life, self._generation, "has begun")
        return life

    def begin(self, decide: Callable[[Life], Life]) -> Life:
        """Append the life that `decide` makes of the newest one, and return it.

        `decide` is called again when another driver was quicker, also if it failed: what it missed may be what that one
        has moved. Nothing is appended if nothing would change.
        """
        while True:
            last = self.check_newest()
            try:
                life = replace(decide(last), history=self._history)
            except SinkFailed:
                if self.check_newest() == last:
                    raise
                continue
            if life == last and self._newest is not None:
                return life
            try:
                self._newest = self._log.append(self._newest, life).number
            except SlotTaken:
                continue
            return life

    def _following(self) -> SlotNumber:
        return SlotNumber(1) if self._newest is None else self._newest.next()


def fenced(layout: SinkLayout, life: Life, generation: Generation, what: str) -> Fenced:
    return Fenced(
        f"generation {generation} of stream {layout.stream} may not write to sink {layout.sink}: "
        f"generation {life.generation} {what}",
        hint=f"if this is a new stream of that name, give the sink another path, or remove {layout.folder} below it "
        "together with the files that the former stream published",
    )


def foreign(store: ObjectStore, layout: SinkLayout, what: str, generation: int) -> SinkFailed:
    return SinkFailed(
        f"{store.url}/{what} generation {generation} of another history of stream {layout.stream}",
        hint=f"give the sink another path, or remove {layout.folder} below it together with the files that the former "
        "stream published",
    )
