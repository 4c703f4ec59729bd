"""How long the generations lived that followed each other by themselves: what restart strategies judge by.

Told by the storage's own clock: a generation began when its slot was written, and ended with its last heartbeat, or
when its successor began. What was seen once of one that has a successor is remembered: it changes no more.
"""

from __future__ import annotations

from headgate_contract.catalogue import Catalogue
from headgate_contract.heartbeats import Seen, read_heartbeat
from headgate_contract.records import GenerationStarted
from headgate_contract.restart import Life
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues

_LOOKED_AT = 10
"""Of so many storage is asked. How long older ones lived is told by the clocks of those who started them."""


class Lived:
    """The lives of one root's streams. For use by several threads."""

    def __init__(self, store: ObjectStore, catalogues: Catalogues) -> None:
        self._store = store
        self._catalogues = catalogues
        self._begun: dict[tuple[str, ...], float] = {}
        self._over: dict[tuple[str, ...], Life] = {}

    def since_claimed_s(self, catalogue: Catalogue, start: GenerationStarted) -> float:
        """How long ago `start` was written."""
        return max(0.0, self._store.now() - self._written(catalogue, start))

    def of_newest(self, catalogue: Catalogue, seen: Seen | None) -> tuple[Life, ...]:
        """The generations since a person last started the stream, whose newest one has given the sign `seen`."""
        chain: list[GenerationStarted] = []
        for start in reversed(catalogue.generations):
            chain.append(start)
            if start.replaces is None:
                break
        newest, *before = chain
        begun = self._begun_s(catalogue, newest)
        heard = seen.modified if seen is not None and seen.heartbeat is not None else begun
        lives = [Life(newest.generation, begun, max(begun, heard))]
        later = newest
        for age, start in enumerate(before, start=1):
            following = lives[-1].started_s
            lives.append(
                self._before(catalogue, start, following)
                if age < _LOOKED_AT
                else Life(start.generation, following - max(0, later.at_ms - start.at_ms) / 1000, following)
            )
            later = start
        return tuple(reversed(lives))

    def _before(self, catalogue: Catalogue, start: GenerationStarted, following: float) -> Life:
        key = _key(catalogue, start)
        if key not in self._over:
            begun = self._begun_s(catalogue, start)
            seen = read_heartbeat(self._store, catalogue.stream, start.generation)
            # A frozen driver may wake and beat on after its successor has started: its life had ended by then.
            ended = begun if seen is None else min(seen.modified, following)
            self._over[key] = Life(start.generation, begun, max(begun, ended))
        return self._over[key]

    def _begun_s(self, catalogue: Catalogue, start: GenerationStarted) -> float:
        key = _key(catalogue, start)
        if key not in self._begun:
            self._begun[key] = self._written(catalogue, start)
        return self._begun[key]

    def _written(self, catalogue: Catalogue, start: GenerationStarted) -> float:
        number = next(slot.number for slot in catalogue.slots if slot.record == start)
        return self._catalogues.slot_written(catalogue.stream, number)


def _key(catalogue: Catalogue, start: GenerationStarted) -> tuple[str, ...]:
    return (catalogue.stream, start.launch)
