"""One simulation: from a seed, a stream's life with everything that may go wrong, and then an end in peace."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import greenlet

from headgate.coordinator.messages import Cancel, Trigger
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.simulation.database import Database
from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.driver import OUT, STREAM, Model, SimulatedDriver
from headgate.testing.simulation.laws import LawBroken, Laws
from headgate.testing.simulation.turns import Host, Task, Verdict
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import HeadgateError, SlotTaken, StorageError
from headgate_contract.ids import Generation, RequestId, SavepointName
from headgate_contract.records import GenerationStarted, slot_log
from headgate_contract.restore import Named, Newest, RestoreFacts, RestoreFrom, Rollback, StartFresh, decide_restore
from headgate_contract.snapshot import SnapshotKind

CALLS = ("create ", "replace ", "read ", "stat ", "list ", "delete ", "sink: ")
LONGEST = 30_000
"""Turns in peace, until the stream must have stopped."""


@dataclass
class Report:
    """What one simulation was made of."""

    seed: int
    turns: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    broken: str | None = None


@dataclass(eq=False)
class Simulation:
    """A stream under one seed."""

    seed: int
    change: Callable[[Model], Model] = lambda model: model
    """Plants a fault in what production does."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.report = Report(self.seed)
        self.now_ms = 1_000
        self.disk = Disk()
        self.database = Database()
        chance = self.chance
        options = CheckpointOptions(
            interval_ms=chance.choice((10, 20, 40, 80)),
            timeout_ms=chance.choice((60, 300, 3000)),
            min_pause_ms=chance.choice((0, 0, 0, 15)),
            max_concurrent=chance.choice((1, 1, 2, 3)),
            retained=chance.choice((1, 1, 2, 3)),
            tolerable_failures=chance.choice((0, 2, 1000)),
        )
        self.model = self.change(
            Model(
                records=chance.randrange(20, 80),
                keys=chance.randrange(1, 8),
                options=options,
                parallelism=chance.randrange(1, 4),
                batch=chance.randrange(1, 8),
            )
        )
        self.laws = Laws(self.disk, self.database, self.model.records, self.model.keys)
        self.drivers: list[SimulatedDriver] = []
        self.launchers: list[Host] = []
        self.faulty = chance.choice((0.0, 0.01, 0.05))
        self.rough = chance.choice((0.0, 0.01, 0.03))
        self.peaceful = False
        self._asked = 0

    def run(self) -> Report:
        """Live through it. What broke a law is in the report."""
        self.hub = greenlet.getcurrent()
        try:
            self.launch()
            for _ in range(self.chance.randrange(150, 500)):
                self.step()
            self._end_in_peace()
        except LawBroken as broken:
            self.report.broken = str(broken)
        except Exception as error:
            self.report.broken = f"{type(error).__name__}: {error}"
            raise
        finally:
            for driver in self.drivers:
                driver.host.die()
            for host in self.launchers:
                host.die()
        return self.report

    # ---- turns

    def step(self) -> None:
        """One turn of whoever is chosen, or something that happens to them."""
        self.report.turns += 1
        self.now_ms += self.chance.randrange(3)
        for driver in self.drivers:
            deadline = driver.next_deadline
            if deadline is not None and deadline <= self.now_ms and not driver.inbox and not driver.host.frozen:
                driver.post_tick()
        if not self.peaceful and self.chance.random() < self.rough:
            self._happen()
            return
        tasks = [task for host in self._hosts() for task in host.ready()]
        if tasks:
            self._turn(self.chance.choice(tasks))
        else:
            self._idle()

    def _turn(self, task: Task) -> None:
        verdict = Verdict.GOOD
        if not self.peaceful and task.at.startswith(CALLS) and self.chance.random() < self.faulty:
            verdict = self.chance.choice([one for one in Verdict if one is not Verdict.GOOD])
            self.report.faults[f"storage: {verdict.value}"] += 1
        task.go(verdict)

    def _idle(self) -> None:
        deadlines = [d for driver in self.drivers if not driver.host.frozen and (d := driver.next_deadline) is not None]
        if deadlines:
            self.now_ms = max(self.now_ms, min(deadlines))
        elif not self._live() and not any(not host.dead and host.tasks for host in self.launchers):
            self.launch()
        elif not self.peaceful:
            self._happen()

    def _hosts(self) -> list[Host]:
        return [driver.host for driver in self.drivers] + self.launchers

    def _live(self) -> list[SimulatedDriver]:
        return [driver for driver in self.drivers if driver.alive]

    # ---- what happens

    def _happen(self) -> None:
        what = self.chance.choice(
            (
                *(self._crash, self._freeze, self._wake, self._suspect, self._jump),
                *(self._ask, self._ask, self._ask, self._echo, self._echo),
            )
        )
        what()

    def _crash(self) -> None:
        hosts = [host for host in self._hosts() if not host.dead and host.tasks]
        if hosts:
            self.chance.choice(hosts).die()
            self.report.faults["crash"] += 1

    def _freeze(self) -> None:
        hosts = [host for host in self._hosts() if not host.dead and not host.frozen and host.tasks]
        if hosts:
            self.chance.choice(hosts).frozen = True
            self.report.faults["freeze"] += 1

    def _wake(self) -> None:
        hosts = [host for host in self._hosts() if host.frozen]
        if hosts:
            self.chance.choice(hosts).frozen = False
            self.report.faults["wake"] += 1

    def _suspect(self) -> None:
        """Somebody takes a driver for dead, rightly or not."""
        self.report.faults["suspicion"] += 1
        self.launch()

    def _jump(self) -> None:
        self.now_ms += self.chance.choice((100, 1_000, 10_000))
        self.report.faults["clock jump"] += 1

    def _echo(self) -> None:
        """An ack comes again, or for a snapshot that it is not of, or of somebody who does not belong here."""
        live = [driver for driver in self._live() if driver.acks and driver.coordinator is not None]
        if not live:
            return
        driver = self.chance.choice(live)
        ack = self.chance.choice(driver.acks[-9:])
        pending = [*(driver.coordinator.pending if driver.coordinator else ()), ack.checkpoint]
        kind = self.chance.choice(("duplicate ack", "foreign ack"))
        if kind == "foreign ack":
            ack = replace(ack, checkpoint=self.chance.choice(pending), participant="state of another job")
        driver.inbox.append(ack)
        self.report.faults[kind] += 1

    def _ask(self) -> None:
        live = [driver for driver in self._live() if driver.coordinator is not None]
        if not live:
            return
        self._asked += 1
        request = RequestId(f"request-{self._asked}")
        driver = self.chance.choice(live)
        name = SavepointName(self.chance.choice(("a", "b", f"s{self._asked}")))
        what = self.chance.choice(("savepoint", "savepoint", "checkpoint", "stop", "stop with savepoint", "cancel"))
        self.report.seen[f"asked: {what}"] += 1
        match what:
            case "savepoint":
                driver.post(Trigger(kind=SnapshotKind.SAVEPOINT, name=name, request=request))
            case "checkpoint":
                driver.post(Trigger(request=request))
            case "stop":
                driver.post(Trigger(request=request, stop=True))
            case "stop with savepoint":
                driver.post(Trigger(kind=SnapshotKind.SAVEPOINT, name=name, request=request, stop=True))
            case "cancel":
                driver.post(Cancel(request=request))

    # ---- launches

    def launch(self) -> None:
        """Somebody begins to start the next generation."""
        host = Host(f"launcher {len(self.launchers) + 1}", self.hub)
        self.launchers.append(host)
        older = not self.peaceful and self.chance.random() < 0.2
        host.spawn("launch", lambda: self._launch(host, older))

    def _launch(self, host: Host, older: bool) -> None:
        store = SimulatedStore(self.disk, host)
        try:
            catalogue = read_catalogue(store, STREAM)
            wanted = Named(self.chance.choice(catalogue.snapshots).id) if older and catalogue.snapshots else Newest()
            facts = RestoreFacts(catalogue=catalogue, wanted=wanted, damaged={}, sinks={OUT: Rollback.RETRACT})
            decision = decide_restore(facts)
            if not isinstance(decision, (RestoreFrom, StartFresh)):
                raise LawBroken(f"nothing can be started: {decision.reason}")
            generation = Generation(len(catalogue.generations) + 1)
            launch = f"launch-{len(self.launchers)}-{self.chance.getrandbits(32)}"
            started = GenerationStarted(
                generation=generation,
                decision=decision,
                first_checkpoint=catalogue.next_checkpoint,
                deployed=1,
                by="the simulation",
                host=host.name,
                at_ms=0,
                launch=launch,
                log="",
            )
            slot_log(store, STREAM).append(catalogue.newest_slot, started)
        except (SlotTaken, StorageError):
            self.report.seen["launch: beaten or refused"] += 1
            return
        except HeadgateError as error:
            raise LawBroken(f"a launch fails: {error}") from error
        host.pause("launches the driver")
        self.report.seen["launch: older" if isinstance(wanted, Named) else "launch: newest"] += 1
        self.drivers.append(
            SimulatedDriver(
                Host(f"generation {generation}", self.hub),
                self.disk,
                self.database,
                self.model_of(generation),
                generation,
                launch,
                lambda: self.now_ms,
            )
        )

    def model_of(self, generation: Generation) -> Model:
        """Each generation may have another parallelism."""
        return replace(self.model, parallelism=random.Random(f"{self.seed}/{generation}").randrange(1, 5))

    # ---- the end

    def _end_in_peace(self) -> None:
        """Nothing goes wrong any more: the stream is read to its end and stops."""
        self.peaceful = True
        for host in self._hosts():
            host.frozen = False
        stopping: SimulatedDriver | None = None
        for _ in range(LONGEST):
            self.step()
            live = self._live()
            if stopping is not None and stopping.ended and self.laws.stopped == stopping.generation:
                break
            if stopping is None or not stopping.alive:
                stopping = None
                done = [driver for driver in live if driver.coordinator is not None and self._has_read_all(driver)]
                if done and not any(host.tasks and not host.dead for host in self.launchers if host.ready()):
                    stopping = max(done, key=lambda driver: driver.generation)
                    stopping.post(Trigger(stop=True, reason="the simulation ends"))
            if not live and not any(host.ready() for host in self.launchers):
                self.launch()
        else:
            raise LawBroken(f"the stream does not stop within {LONGEST} turns in peace")
        while any(driver.alive and not driver.ended for driver in self.drivers) and (
            tasks := [task for host in self._hosts() for task in host.ready()]
        ):
            self.report.turns += 1
            self.chance.choice(tasks).go()
        self.laws.check_end()
        for driver in self.drivers:
            how = "crashed" if driver.host.dead and not driver.ended else "ended"
            kind = "well" if driver.error is None else type(driver.error).__name__
            self.report.seen[f"driver: {how} {kind if how == 'ended' else ''}".strip()] += 1
        self.report.seen["snapshots"] += len(self.laws.completed)
        self.report.seen["retired"] += len(self.laws.retired)

    def _has_read_all(self, driver: SimulatedDriver) -> bool:
        coordinator = driver.coordinator
        assert coordinator is not None
        return int(coordinator.cut.positions["records"]["next"]) >= self.model.records  # type: ignore[index]
