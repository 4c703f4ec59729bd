"""Streams at work that nobody declares: seen within half a minute, and those at rest cost next to nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import StreamName
from headgate_control import Condition, StreamStatus
from headgate_control.catalogues import Catalogues
from headgate_control.status import Observer
from headgate_control.undeclared import EVERY_S, Undeclared
from headgate_control.watch import Watch
from tests.control.world import STREAM, World

OTHER = StreamName("other")


class Counting(Observer):
    """Notes which streams were looked at."""

    looked: list[StreamName]

    def fleet(self, streams: Iterable[StreamName] | None = None) -> list[StreamStatus]:
        names = list(streams or [])
        self.looked += names
        return super().fleet(names)


def test_who_is_at_rest_is_looked_at_seldom_and_who_begins_is_seen_in_time(world: World) -> None:
    for stream in (STREAM, OTHER):
        world.deployed(stream)
    world.started()
    world.beat()
    now = 0.0
    catalogues = Catalogues(world.store)
    observer = Counting(world.store, catalogues, Watch())
    observer.looked = []
    undeclared = Undeclared(catalogues, observer, lambda: now)

    def look(*declared: StreamName) -> list[StreamName]:
        observer.looked.clear()
        return [status.stream for status in undeclared.beside(declared)]

    assert look() == [STREAM]
    assert observer.looked == [STREAM, OTHER]
    world.started(stream=OTHER)
    world.beat(stream=OTHER)
    now = EVERY_S - 1
    assert (look(), observer.looked) == ([STREAM], [STREAM])
    now = EVERY_S
    assert look() == [STREAM, OTHER]
    assert look(STREAM) == [OTHER]
    assert look(STREAM, OTHER) == []
    assert observer.looked == []


def test_one_that_is_lost_stays_among_them_until_it_is_stopped(world: World) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="no port is free")
    control = world.control()
    assert [status.condition for status in control.undeclared([])] == [Condition.FAILED]
    control.stop(STREAM)
    assert control.undeclared([]) == []
