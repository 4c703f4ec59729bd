"""One simulation: from a seed, a stream's life with everything that may go wrong, and then an end in peace."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import greenlet

from headgate.coordinator.messages import Tick
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.simulation.database import Database
from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.driver import Model, SimulatedDriver
from headgate.testing.simulation.job import OUT, STREAM
from headgate.testing.simulation.laws import LawBroken, Laws
from headgate.testing.simulation.lives import IllegalStep, Steps
from headgate.testing.simulation.mishaps import CALLS, Mishaps
from headgate.testing.simulation.report import Report
from headgate.testing.simulation.trace import Line, Trace
from headgate.testing.simulation.turns import LAUNCHES, Host, Task, Verdict
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import HeadgateError, SlotTaken, StorageError
from headgate_contract.ids import Generation
from headgate_contract.records import GenerationStarted, slot_log
from headgate_contract.restore import Named, Newest, RestoreFacts, RestoreFrom, Rollback, StartFresh, decide_restore

LONGEST = 30_000
"""Turns in peace, until the stream must have stopped."""


@dataclass(eq=False)
class Simulation:
    """A stream under one seed."""

    seed: int
    change: Callable[[Model], Model] = lambda model: model
    """Plants a fault in what production does."""
    trace: Trace = field(default_factory=Trace)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.report = Report(self.seed)
        self.now_ms = 1_000
        self.disk = Disk()
        self.steps = Steps()
        self.database = Database(self.steps)
        chance = self.chance
        options = CheckpointOptions(
            interval_ms=chance.choice((10, 20, 40, 80)),
            timeout_ms=chance.choice((60, 300, 3000)),
            min_pause_ms=chance.choice((0, 0, 0, 15)),
            max_concurrent=chance.choice((1, 1, 2, 3)),
            retained=chance.choice((1, 2, 3, 5)),
            tolerable_failures=chance.choice((0, 2, 1000)),
        )
        self.model = self.change(
            Model(
                records=chance.randrange(20, 80),
                keys=chance.randrange(1, 8),
                options=options,
                parallelism=chance.randrange(1, 4),
                batch=chance.randrange(1, 8),
                look_ms=chance.choice((50, 500, 5_000)),
            )
        )
        self.laws = Laws(self.disk, self.database, self.steps, self.model.records, self.model.keys)
        self.drivers: list[SimulatedDriver] = []
        self.launchers: list[Host] = []
        self.faulty = chance.choice((0.0, 0.01, 0.05))
        self.rough = chance.choice((0.0, 0.01, 0.03))
        self.peaceful = False
        self.mishaps = Mishaps(self)
        self._held: list[int] = []
        """Until when tasks are held up."""

    def run(self) -> Report:
        """Live through it. What broke a law is in the report."""
        self.hub = greenlet.getcurrent()
        try:
            self.launch()
            for _ in range(self.chance.randrange(150, 500)):
                self.step()
            self._end_in_peace()
        except (LawBroken, IllegalStep) as broken:
            self.report.broken = str(broken)
        except Exception as error:
            self.report.broken = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.report.steps = self.steps.seen
            if self.report.broken is not None:
                self.report.trace = self.trace.lines()
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
            if driver.tick_is_due and not driver.host.frozen:
                driver.post(Tick())
        if not self.peaceful and self.chance.random() < self.rough:
            self.mishaps.happen()
            return
        tasks = [task for host in self.hosts() for task in host.ready()]
        if tasks:
            self._turn(self.chance.choice(tasks))
        else:
            self._idle()

    def _turn(self, task: Task) -> None:
        verdict = Verdict.GOOD
        if not self.peaceful and task.at.startswith(CALLS) and self.chance.random() < self.faulty:
            verdict = self.mishaps.verdict()
        how = "" if verdict is Verdict.GOOD else verdict.value
        self.note(f"{task.host.name}, {task.name}", task.at, how)
        task.go(verdict)
        self.laws.check()

    def note(self, who: str, what: Any, how: str = "") -> None:
        self.trace.add(Line(self.report.turns, self.now_ms, who, what, how))

    def hold(self, task: Task, ms: int) -> None:
        """What `task` is about to do takes so long."""
        until = self.now_ms + ms
        task.held = lambda: self.now_ms < until
        self._held.append(until)

    def _idle(self) -> None:
        moments = [d for driver in self.drivers if not driver.host.frozen and (d := driver.next_deadline) is not None]
        moments += [until for until in self._held if until > self.now_ms]
        if moments:
            self.now_ms = max(self.now_ms, min(moments))
        elif not self.live() and not any(not host.dead and host.tasks for host in self.launchers):
            self.launch()
        elif not self.peaceful:
            self.mishaps.happen()

    def hosts(self) -> list[Host]:
        return [driver.host for driver in self.drivers] + self.launchers

    def live(self) -> list[SimulatedDriver]:
        return [driver for driver in self.drivers if driver.alive]

    # ---- launches

    def launch(self) -> None:
        """Somebody begins to start the next generation."""
        host = self._host(f"launcher {len(self.launchers) + 1}")
        self.launchers.append(host)
        older = not self.peaceful and self.chance.random() < 0.4
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
        host.pause(LAUNCHES)
        self.report.seen["launch: older" if isinstance(wanted, Named) else "launch: newest"] += 1
        self.drivers.append(
            SimulatedDriver(
                self._host(f"generation {generation}"),
                self.disk,
                self.database,
                self.model_of(generation),
                generation,
                launch,
                lambda: self.now_ms,
                self.steps,
            )
        )

    def _host(self, name: str) -> Host:
        return Host(name, self.hub, note=self.note)

    def model_of(self, generation: Generation) -> Model:
        """Each generation may have another parallelism."""
        return replace(self.model, parallelism=random.Random(f"{self.seed}/{generation}").randrange(1, 5))

    # ---- the end

    def _end_in_peace(self) -> None:
        """Nothing goes wrong any more: the stream is read to its end and stops."""
        self.peaceful = True
        for host in self.hosts():
            host.frozen = False
        stopping: SimulatedDriver | None = None
        for _ in range(LONGEST):
            self.step()
            live = self.live()
            if stopping is not None and stopping.ended and self.laws.stopped == stopping.generation:
                break
            if stopping is None or not stopping.alive:
                stopping = None
                done = [driver for driver in live if driver.coordinator is not None and self._has_read_all(driver)]
                if done and not any(host.tasks and not host.dead for host in self.launchers if host.ready()):
                    stopping = max(done, key=lambda driver: driver.generation)
                    stopping.signalled = True
            if not live and not any(host.ready() for host in self.launchers):
                self.launch()
        else:
            raise LawBroken(f"the stream does not stop within {LONGEST} turns in peace")
        for _ in range(LONGEST):
            tasks = [task for host in self.hosts() for task in host.ready()]
            if not tasks:
                break
            self.report.turns += 1
            self._turn(self.chance.choice(tasks))
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
