"""Which groups of a file sink count: the log of lives, one record for each start, created exclusively.

A restore that goes back behind published groups retracts all of them in the one moment in which its record is created,
and a later one reinstates them likewise; files follow. A group's place is 1 when it is published; each life that finds
it on the wrong side of its lineage moves it on by one: even places are hidden, odd ones visible.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from headgate.sink.files_errors import damaged, fenced, foreign
from headgate.sink.files_layout import PUBLISHED, Manifest, SinkLayout
from headgate_contract import wire
from headgate_contract.anchored import AnchoredStore
from headgate_contract.errors import CorruptObject, NewerVersion, OlderVersion, SinkFailed, SlotTaken
from headgate_contract.id_ranges import ranges_of
from headgate_contract.ids import CheckpointId, Generation, SlotNumber
from headgate_contract.log import ExclusiveLog
from headgate_contract.paths import number_of, numbered
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

    def is_late(self, manifest: Manifest) -> bool:
        """Whether a frozen driver published the group, of which nobody had told this life."""
        return manifest.group > self.known and manifest.generation < self.generation

    def hides(self, manifest: Manifest) -> bool:
        """Whether the group does not count: it was gone back behind, or came too late to be known."""
        return self.is_late(manifest) or self.place(manifest.group) % 2 == 0


@dataclass(frozen=True, slots=True)
class LifeFault:
    """The newest record of a life, which cannot be read."""

    path: str
    why: str
    own: bytes | None
    """Its own bytes, if its checksum proves them."""


UNBORN = Life(Generation(1), 0, ())
"""What holds before the first life has begun."""


def next_life(last: Life, generation: Generation, lineage: Iterable[CheckpointId], known: int) -> Life:
    """The life that follows `last` and stands on `lineage`, where `known` is the highest id that there is."""
    known = max(known, last.known)
    visible = [(span.first, span.last) for span in ranges_of(lineage).up_to(known).spans]
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


def life_of(generation: Generation, known: int, places: Mapping[CheckpointId, int]) -> Life:
    """The life in which each group is at its one of `places`."""
    spans: list[Span] = []
    for id in sorted(places):
        if spans and spans[-1].last == id - 1:
            _extend(spans, Span(id, id, places[id]))
        else:
            spans.append(Span(id, id, places[id]))
    return Life(generation, known, tuple(span for span in spans if span.place != PUBLISHED))


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

    def has_begun(self) -> bool:
        """Whether there is a record of any life, whatever it says."""
        return bool(self._numbers())

    def anchored(self) -> AnchoredStore:
        """The target, as long as the newest life's record is there."""
        assert self._newest is not None, "a life has begun"
        path = numbered(self._layout.lives, self._newest)
        return AnchoredStore(self._store, path, self.judge_of(path, self._store.read(path)))

    def judge_of(self, path: str, record: bytes) -> Callable[[bytes | None], None]:
        """What refuses the target unless `record` is at `path`."""

        def judge(data: bytes | None) -> None:
            if data != record:
                raise SinkFailed(
                    f"the target {self._store.url} of sink {self._layout.sink} is gone, or is another one: "
                    f"{path} is not there as it was",
                    hint="is its storage mounted? nothing is published until it is back",
                )

        return judge

    def newest(self) -> Life:
        """The newest life, looked up anew. Raises SinkFailed if it is of another history."""
        life = self.whosoever()
        self._check_history(life)
        return life

    def _check_history(self, life: Life) -> None:
        if life.history not in ("", self._history):
            raise foreign(self._store, self._layout, f"{self._layout.lives} says that it belongs to", life.generation)

    def whosoever(self) -> Life:
        """The newest life, of whichever history."""
        if not self._looked:
            self._newest = max(self._numbers(), default=None)
            self._looked = True
        try:
            while self._log.peek(self._following()) is not None:
                self._newest = self._following()
            slot = None if self._newest is None else self._log.peek(self._newest)
        except (NewerVersion, OlderVersion):
            raise
        except CorruptObject as error:
            raise damaged(self._layout, f"{self._store.url}/{error.what}") from error
        return UNBORN if slot is None else slot.record

    def as_far_as_readable(self) -> tuple[Life, LifeFault | None]:
        """The newest life that can be read, also one that a single flipped bit hides, and why the newest cannot."""
        fault: LifeFault | None = None
        for number in sorted(self._numbers(), reverse=True):
            path = numbered(self._layout.lives, number)
            data = self._store.read(path)
            own = data
            try:
                return self._log.decode(data, path), fault
            except (NewerVersion, OlderVersion):
                raise
            except CorruptObject as error:
                own = wire.mended(data) or b""
                if fault is None:
                    fault = LifeFault(path, error.what, own or None)
            with suppress(CorruptObject):
                return self._log.decode(own, path), fault
        return UNBORN, fault

    def go_on_from(self, life: Life, before: Life) -> Life:
        """Behind a repair: append `life` as the newest, found out from what is left.

        `before`: the newest that can be read. Raises Fenced if somebody else is at work there.
        """
        self._check_history(before)
        self._check_generation(before)
        newest = max(self._numbers(), default=None)
        try:
            slot = self._log.append(newest, replace(life, history=self._history))
        except SlotTaken:
            raise fenced(self._layout, life.generation, self._generation, "is at work there, too,") from None
        self._newest, self._looked = slot.number, True
        return slot.record

    def forget(self) -> None:
        """What was read is read again: a repair has put other bytes there."""
        self._log = ExclusiveLog(self._store, self._layout.lives, "manifest", Life)
        self._looked = False

    def _numbers(self) -> list[SlotNumber]:
        numbers = (number_of(info.path) for info in self._store.list(self._layout.lives))
        return [number for number in numbers if number is not None]

    def check_newest(self) -> Life:
        """The newest life. Raises Fenced if a newer generation's is among those that have begun."""
        life = self.newest()
        self._check_generation(life)
        return life

    def _check_generation(self, life: Life) -> None:
        if life.generation > self._generation:
            raise fenced(self._layout, life.generation, self._generation, "has begun")

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
