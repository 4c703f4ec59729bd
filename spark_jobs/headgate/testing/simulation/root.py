"""The root of a simulation, and what may lie in its place for a while: nothing, another root, an older copy of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.job import STREAM
from headgate.testing.simulation.turns import Host
from headgate_contract import wire
from headgate_contract.codec import to_plain
from headgate_contract.ids import SlotNumber
from headgate_contract.paths import ROOT, StreamPaths, numbered
from headgate_contract.records import Deployed
from headgate_contract.root_store import RootIdentity, RootStore

ROOT_ID = "the root"


def new_root() -> dict[str, bytes]:
    """A root on which the stream was deployed."""
    deployed = Deployed(job="", job_sha256="", directory="", settings={}, plan={}, by="somebody", at_ms=0)
    path = numbered(StreamPaths(STREAM).decisions, SlotNumber(1))
    stored = {"writer": "somebody", "record": {"type": Deployed.TYPE, **to_plain(deployed)}}
    return {**_identity(ROOT_ID), path: wire.encode("decision", stored, path)}


def whichever_root(disk: Disk, host: Host) -> RootStore:
    """What people have: they have not been told which one it is."""
    return RootStore(SimulatedStore(disk, host))


def _identity(id: str) -> dict[str, bytes]:
    return {ROOT: wire.encode("root", RootIdentity(id, "somebody", 0), ROOT)}


@dataclass
class Mount:
    """What is in the root's place, by the simulation's chance, and when the root is back."""

    disk: Disk
    chance: random.Random
    until_ms: int | None = None
    """When the root is back; None while it is there."""
    is_copy: bool = False
    """Whoever starts the stream on a copy has two of them, which nothing can fence: nobody does, here."""
    _copies: list[dict[str, bytes]] = field(default_factory=list)

    def remember(self) -> None:
        """Somebody makes a copy."""
        if self.disk.elsewhere is None:
            self._copies = [*self._copies[-4:], dict(self.disk.objects)]

    def tick(self, now_ms: int) -> None:
        if self.until_ms is not None and now_ms >= self.until_ms:
            self.bring_back()

    def bring_back(self) -> None:
        self.disk.elsewhere, self.until_ms, self.is_copy = None, None, False

    def possible(self, known: int) -> dict[str, Callable[[], None]]:
        """What could happen to it now.

        A copy lacks the slot `known`, which every driver knows of; 0: there is none such. What somebody cannot tell
        from the root is another one with its identity, and nothing can fence across two.
        """
        if self.disk.elsewhere is not None:
            return {}
        newest = numbered(StreamPaths(STREAM).slots, SlotNumber(known)) if known else ROOT
        older = [copy for copy in self._copies if newest not in copy]
        found: dict[str, Callable[[], None]] = {
            "root gone": partial(self._put, {}),
            "another root": partial(self._put, _identity("another")),
        }
        if older:
            found["older copy of the root"] = partial(self._put_copy, older)
        return found

    def happen(self, what: Callable[[], None], now_ms: int) -> None:
        what()
        self.until_ms = now_ms + self.chance.choice((3, 10, 30, 100, 300, 30_000))

    def _put(self, objects: dict[str, bytes]) -> None:
        self.disk.elsewhere = dict(objects)

    def _put_copy(self, copies: list[dict[str, bytes]]) -> None:
        self._put(self.chance.choice(copies))
        self.is_copy = True
