"""What heartbeats alone tell of a stream whose log cannot be read: who may be at work, and whether it is down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate_contract.errors import StreamRunning
from headgate_contract.heartbeats import TERMINAL, Seen, read_heartbeat
from headgate_contract.ids import StreamName
from headgate_contract.paths import HEARTBEATS, heartbeat_of
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of


@dataclass(frozen=True, slots=True)
class Sign:
    """The heartbeat of one generation, and what this host sees of its process."""

    seen: Seen
    process: ProcessSign

    @property
    def down(self) -> bool:
        """Whether it has ended, as it says itself or as this host sees."""
        beat = self.seen.heartbeat
        return self.process is ProcessSign.GONE or (beat is not None and beat.state in TERMINAL)

    @property
    def told(self) -> str:
        """The driver, where it is and since when it was not heard of."""
        beat = self.seen.heartbeat
        generation = f"generation {self.seen.generation}"
        heard = f"last heard of {self.seen.age_s:.0f} s ago"
        if beat is None:
            return f"the heartbeat of {generation} cannot be read ({heard})"
        where = f" (pid {beat.process.pid} on {beat.process.host})" if beat.process is not None else ""
        if self.process is ProcessSign.GONE and beat.state not in TERMINAL:
            return f"the process of {generation}{where} is gone"
        return f"{generation}{where} is {beat.state.value}, {heard}"


def signs_of(store: ObjectStore, stream: StreamName) -> list[Sign]:
    """Of every generation of which there is a heartbeat, the newest first; also what cannot be read."""
    found = []
    for info in store.list_after(HEARTBEATS, f"{stream}.g"):
        whose = heartbeat_of(info.path)
        seen = read_heartbeat(store, *whose) if whose is not None and whose[0] == stream else None
        if seen is not None:
            found.append(Sign(seen, sign_of(seen.heartbeat.process if seen.heartbeat is not None else None)))
    return sorted(found, key=lambda sign: -sign.seen.generation)


def newest_sign(store: ObjectStore, stream: StreamName) -> Sign | None:
    """That of the newest generation which has given one: what cannot be read is no sign of life, and hides none."""
    return next((sign for sign in signs_of(store, stream) if sign.seen.heartbeat is not None), None)


def damaged_heartbeats(store: ObjectStore, stream: StreamName) -> tuple[str, ...]:
    """The heartbeats that cannot be read, each with why, the newest generation's first."""
    return tuple(sign.seen.fault for sign in signs_of(store, stream) if sign.seen.fault is not None)


def check_down(
    store: ObjectStore, stream: StreamName, settings: Settings, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Raise StreamRunning unless no driver of `stream` is at work, as far as heartbeats and this host's processes tell.

    One on another host has to be silent for longer than is allowed, and to stay so while this looks on. A heartbeat
    that is damaged says nothing; if a driver is behind it, it writes a good one meanwhile.
    """
    open_ones = [sign for sign in signs_of(store, stream) if not sign.down]
    allowed: float = settings["heartbeat.timeout"].seconds
    for sign in open_ones:
        heard = sign.seen.is_sign and sign.seen.age_s <= allowed
        if sign.process is ProcessSign.ALIVE or heard:
            raise StreamRunning(
                f"stream {stream} may be running: {sign.told}",
                hint=f"`headgate cancel {stream}` ends it"
                + ("" if sign.process is ProcessSign.ALIVE else f"; or wait until it was silent for {allowed:g} s"),
            )
    if not open_ones:
        return
    sleep(2 * settings["heartbeat.interval"].seconds)
    before = {sign.seen.generation: sign.seen.modified for sign in open_ones}
    for sign in signs_of(store, stream):
        heard = sign.seen.is_sign and before.get(sign.seen.generation) != sign.seen.modified
        if heard and not sign.down:
            raise StreamRunning(f"stream {stream} is running: {sign.told}", hint=f"`headgate cancel {stream}` ends it")
