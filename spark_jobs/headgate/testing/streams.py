"""Whole drivers by script: the production classes on a simulated disk, under a clock by hand, without Spark.

Nothing moves by itself: what people, time and faults do is noted, and `run` lets everybody take turns until nobody has
anything to do. The laws of the protocol are looked at after each turn; see docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self, TypeVar

from headgate.coordinator.messages import Acknowledged, Cancel, Declined, NotifyAborted, Trigger
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.simulation.database import Row, last_word
from headgate.testing.simulation.disk import SimulatedStore
from headgate.testing.simulation.driver import Model, SimulatedDriver
from headgate.testing.simulation.job import STREAM
from headgate.testing.simulation.laws import LawBroken
from headgate.testing.simulation.lives import IllegalStep
from headgate.testing.simulation.scene import Scene
from headgate.testing.simulation.turns import Host, Task, Verdict
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, RequestId, SavepointName
from headgate_contract.mailbox import Answer, Mailbox
from headgate_contract.restore import ClaimMode, Newest, Wanted
from headgate_contract.snapshot import SnapshotKind

T = TypeVar("T")

MANUAL = CheckpointOptions(interval_ms=None)
"""No checkpoint but those that somebody asks for."""
NEWEST = Newest()
NO_RESTART: Mapping[str, str] = {"restart-strategy.type": "none"}
_LONGEST = 20_000
"""Turns of one `run`."""


class _Glance(SimulatedStore):
    """Reads the disk without anybody's turn."""

    def _turn(self, what: str, path: str, act: Callable[[], T]) -> T:
        return act()


class DriverHarness:
    """One driver of a stream: what may be done to it, and what it has come to."""

    def __init__(self, stream: StreamHarness, driver: SimulatedDriver) -> None:
        self._stream = stream
        self._driver = driver
        self._slow: list[str] = []

    # ---- what is done to it

    def batch(self, number: int = 1) -> None:
        """So many more micro-batches may begin."""
        self._driver.batches = (self._driver.batches or 0) + number

    def fail_batch(self) -> None:
        """The micro-batch that runs, or the next one, fails."""
        self._driver.step_fails = True

    def trigger(self, savepoint: str | None = None) -> RequestId:
        """Somebody asks for a checkpoint, or for a savepoint of that name."""
        return self._ask(savepoint, stop=False)

    def stop(self, savepoint: str | None = None) -> RequestId:
        """Somebody asks for the end, with a last checkpoint or savepoint."""
        return self._ask(savepoint, stop=True)

    def drain(self, savepoint: str) -> RequestId:
        """Somebody asks for the end with a last savepoint, before which the operators finish."""
        return self._ask(savepoint, stop=True, drain=True)

    def cancel(self) -> RequestId:
        """Somebody asks for the end at once, without a snapshot."""
        request = self._stream.next_request()
        self._driver.post(Cancel(request=request))
        return request

    def terminate(self) -> None:
        """SIGTERM."""
        self._driver.signalled = True

    def ack(self, checkpoint: int, participant: str) -> None:
        """An ack comes: again, late, or from a stranger. Those that belong to a snapshot come by themselves."""
        self._driver.post(Acknowledged(checkpoint=CheckpointId(checkpoint), participant=participant))

    def decline(self, checkpoint: int, participant: str = "state numbers", cause: str = "the disk is full") -> None:
        self._driver.post(Declined(checkpoint=CheckpointId(checkpoint), participant=participant, cause=cause))

    def slow(self, task: str) -> None:
        """Tasks of this name (a pattern, such as `state numbers of 2`) take no turn until `hurry`."""
        self._slow.append(task)

    def hurry(self) -> None:
        """Nothing is slow any more."""
        self._slow.clear()

    def crash(self) -> None:
        """SIGKILL."""
        self._driver.host.die()

    def freeze(self) -> None:
        """SIGSTOP: it takes no turn until it wakes."""
        self._driver.host.frozen = True

    def wake(self) -> None:
        self._driver.host.frozen = False

    # ---- its turns

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Let it alone take turns, until nothing is left to do or `until` says so."""
        self._stream.take_turns(lambda: [self._driver.host], until)

    def run_to(self, call: str) -> None:
        """Let it alone go on until it is about to make a call to storage or the sink, such as `create */slots/*`."""
        self.run(lambda: self._standing_at(call) is not None)

    def run_past(self, call: str) -> None:
        """The same, and the call is made; what comes of it, nobody has seen yet."""
        self.run_to(call)
        task = self._standing_at(call)
        assert task is not None
        self._stream.take_turn(task)

    def _standing_at(self, call: str) -> Task | None:
        tasks = (task for task in self._driver.host.tasks if task.ready and fnmatchcase(task.at, call))
        return next(tasks, None)

    # ---- what it has come to

    @property
    def generation(self) -> int:
        return int(self._driver.generation)

    @property
    def state(self) -> StreamState:
        """As its heartbeat tells it."""
        return self._driver.heart.state

    @property
    def restarts(self) -> int:
        """How often it has gone on after a failure."""
        return self._driver.heart.progress.restarts

    @property
    def error(self) -> BaseException | None:
        """Why it ended, if not in good order."""
        return self._driver.error

    @property
    def crashed(self) -> bool:
        return self._driver.host.dead

    @property
    def pending(self) -> list[int]:
        """The snapshots under way."""
        coordinator = self._driver.coordinator
        return sorted(int(id) for id in coordinator.pending) if coordinator is not None else []

    @property
    def aborted(self) -> dict[int, str]:
        """The snapshots that came to nothing, and why."""
        notices = self._stream.told(self._driver.host, NotifyAborted)
        return {int(notice.checkpoint): notice.cause for notice in notices}

    @property
    def position(self) -> int:
        """How many records it has read."""
        return self._driver.reached

    def takes_turns(self, task: Task) -> bool:
        return not any(fnmatchcase(task.name, pattern) for pattern in self._slow)

    def is_of(self, host: Host) -> bool:
        return self._driver.host is host

    def _ask(self, savepoint: str | None, stop: bool, drain: bool = False) -> RequestId:
        request = self._stream.next_request()
        name = SavepointName(savepoint) if savepoint else None
        kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
        self._driver.post(Trigger(kind=kind, name=name, request=request, stop=stop, drain=drain))
        return request


class StreamHarness(Scene):
    """A stream that numbers the records of each key: `records` of them, record i of key i modulo `keys`."""

    def __init__(
        self,
        options: CheckpointOptions = MANUAL,
        *,
        records: int = 100,
        keys: int = 3,
        batch: int = 5,
        parallelism: int = 2,
        settings: Mapping[str, str] = NO_RESTART,
    ) -> None:
        """`settings` say whether and when drivers restart (`restart-strategy.*`)."""
        super().__init__(
            Model(
                records=records,
                keys=keys,
                options=options,
                parallelism=parallelism,
                batch=batch,
                look_ms=2_000,
                settings=settings,
            )
        )
        self._harnesses: list[DriverHarness] = []
        self._verdicts: list[tuple[str, Verdict]] = []
        self._told: list[tuple[str, Any]] = []
        self._last: dict[Task, int] = {}
        self._requests = 0
        self._stray_ms = 100
        self._glance = _Glance(self.disk, self._host("glance"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- what happens

    def launch(self, wanted: Wanted = NEWEST, claim: ClaimMode = ClaimMode.NO_CLAIM) -> DriverHarness:
        """Somebody starts the next generation; its driver runs then, unless something keeps it from that."""
        driver = self.claim(wanted, claim)
        driver.run(lambda: driver.state not in (StreamState.LAUNCHED, StreamState.RESTORING) or driver.crashed)
        return driver

    def claim(self, wanted: Wanted = NEWEST, claim: ClaimMode = ClaimMode.NO_CLAIM) -> DriverHarness:
        """Somebody claims the next generation's slot and launches its driver, which has not had a turn yet."""
        before = len(self.drivers)
        host = self.launch_by(lambda catalogue: wanted, "by hand", claim)
        self.take_turns(lambda: [host], lambda: len(self.drivers) > before)
        driver = self.drivers[-1]
        driver.batches = 0
        self._harnesses.append(DriverHarness(self, driver))
        return self._harnesses[-1]

    def storage(self, verdict: Verdict, call: str, times: int = 1, after_ms: int = 100) -> None:
        """The next call (a pattern, such as `create */slots/*`) ends like that, whoever makes it.

        One that is `Verdict.STRAY` fails now, and is carried out `after_ms` later.
        """
        self._verdicts += [(call, verdict)] * times
        self._stray_ms = after_ms

    def straying_ms(self) -> int:
        return self._stray_ms

    def pass_time(self, ms: int) -> None:
        """Time passes, and everybody goes on."""
        self.now_ms += ms
        self.run()

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Let everybody take turns, until nothing is left to do or `until` says so."""
        self.take_turns(self.hosts, until)

    def take_turns(self, hosts: Callable[[], list[Host]], until: Callable[[], bool] | None) -> None:
        for _ in range(_LONGEST):
            if until is not None and until():
                return
            self.tick()
            tasks = [
                task
                for host in hosts()
                for task in host.ready()
                if all(driver.takes_turns(task) for driver in self._harnesses if driver.is_of(host))
            ]
            if not tasks:
                break
            self.take_turn(min(tasks, key=lambda task: self._last.get(task, 0)))
        else:
            raise AssertionError(f"nobody comes to rest within {_LONGEST} turns:\n{self.trace}")
        if until is not None:
            raise AssertionError(f"nothing is left to do, and what was waited for has not come:\n{self.trace}")

    def take_turn(self, task: Task) -> None:
        """One turn. What breaks a law is an AssertionError that tells the last turns."""
        self.turns += 1
        self._last[task] = self.turns
        try:
            self.turn(task, self._verdict(task.at))
        except (LawBroken, IllegalStep) as broken:
            raise AssertionError(f"{broken}\n{self.trace}") from broken

    def _verdict(self, call: str) -> Verdict:
        for index, (pattern, verdict) in enumerate(self._verdicts):
            if fnmatchcase(call, pattern):
                del self._verdicts[index]
                return verdict
        return Verdict.GOOD

    def note(self, who: str, what: Any, how: str = "") -> None:
        super().note(who, what, how)
        self._told.append((who, what))

    def next_request(self) -> RequestId:
        self._requests += 1
        return RequestId(f"request-{self._requests}")

    # ---- what is true

    @property
    def catalogue(self) -> Catalogue:
        """What the logs add up to."""
        return read_catalogue(self._glance, STREAM)

    @property
    def slots(self) -> list[str]:
        """The kinds of the log's slots, in order."""
        return [slot.record.TYPE for slot in self.catalogue.slots]

    @property
    def completed(self) -> list[int]:
        """The snapshots that have a slot, in order."""
        return [int(ref.id) for ref in self.catalogue.completed]

    @property
    def retained(self) -> list[int]:
        """Those of them that may be restored."""
        return sorted(int(ref.id) for ref in self.catalogue.snapshots)

    @property
    def committed(self) -> list[Row]:
        """What a reader of the sink sees: each record with its number, in the order of the records."""
        return sorted(row for row in self.database.visible() if row[0] >= 0)

    @property
    def last_words(self) -> dict[int, int]:
        """What a reader sees of drains: of each key how many records it has had."""
        return {last_word(id): number for id, number in self.database.visible() if id < 0}

    @property
    def files(self) -> list[str]:
        """What is on shared storage of snapshots, below the stream's folder."""
        kept = ("checkpoints/", "savepoints/", "shared/")
        below = (path.removeprefix(f"streams/{STREAM}/") for path in sorted(self.disk.objects))
        return [path for path in below if path.startswith(kept)]

    def answer(self, request: RequestId) -> Answer | None:
        """What whoever asked has been told."""
        return Mailbox(self._glance, STREAM).answer(request)

    def told(self, host: Host, kind: type[T]) -> list[T]:
        """What a driver's coordinator wanted of that kind."""
        return [what for who, what in self._told if who.startswith(f"{host.name},") and isinstance(what, kind)]
