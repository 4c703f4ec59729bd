"""Where drivers, launchers, storage and the sink meet: whose turn it is, and what is true so far."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import greenlet

from headgate.coordinator.messages import Tick
from headgate.testing.simulation.database import Database
from headgate.testing.simulation.disk import Disk
from headgate.testing.simulation.driver import Model, SimulatedDriver
from headgate.testing.simulation.graph_laws import GraphLaws
from headgate.testing.simulation.job import OUT, STREAM
from headgate.testing.simulation.laws import LawBroken, Laws
from headgate.testing.simulation.lives import Steps
from headgate.testing.simulation.root import new_root, whichever_root
from headgate.testing.simulation.trace import Line, Trace
from headgate.testing.simulation.turns import LAUNCHES, Host, Task, Verdict
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import HeadgateError, SlotTaken, StorageError
from headgate_contract.ids import Generation
from headgate_contract.mailbox import Mailbox, Request
from headgate_contract.records import GenerationStarted, slot_log
from headgate_contract.restore import (
    ClaimMode,
    RestoreFacts,
    RestoreFrom,
    Rollback,
    StartFresh,
    Wanted,
    decide_restore,
)
from headgate_contract.stream_logs import claim_slot

NO_CLAIM = ClaimMode.NO_CLAIM


class Scene:
    """One stream on one disk, under one clock. The laws are looked at after each turn."""

    def __init__(self, model: Model, trace: Trace | None = None) -> None:
        self.model = model
        self.trace = trace or Trace()
        self.now_ms = 1_000
        self.turns = 0
        self.steps = Steps()
        self.disk = Disk(new_root())
        sinks = [OUT] if model.graph is None else model.graph.sinks
        self.databases = {sink: Database(self.steps) for sink in sinks}
        self.laws = self._laws(model)
        self.drivers: list[SimulatedDriver] = []
        self.launchers: list[Host] = []
        self._hub = greenlet.getcurrent()
        self._network = self._host("the network")
        self._people = self._host("somebody")
        self._held: list[int] = []
        """Until when tasks are held up."""

    def _laws(self, model: Model) -> Laws:
        if model.graph is None:
            return Laws(self.disk, self.databases[OUT], self.steps, model.records, model.keys)
        return GraphLaws(self.disk, self.databases, self.steps, model.graph)

    @property
    def database(self) -> Database:
        """Of a job with one sink."""
        (found,) = self.databases.values()
        return found

    # ---- turns

    def hosts(self) -> list[Host]:
        return [driver.host for driver in self.drivers] + self.launchers + [self._network, self._people]

    def live(self) -> list[SimulatedDriver]:
        return [driver for driver in self.drivers if driver.alive]

    def ready(self) -> list[Task]:
        """Whoever could go on now."""
        return [task for host in self.hosts() for task in host.ready()]

    def tick(self) -> None:
        """Let the coordinators know that time has passed, where one waits for it."""
        for driver in self.drivers:
            if driver.tick_is_due and not driver.host.frozen:
                driver.post(Tick())

    def turn(self, task: Task, verdict: Verdict = Verdict.GOOD) -> None:
        how = "" if verdict is Verdict.GOOD else verdict.value
        self.note(f"{task.host.name}, {task.name}", task.at, how)
        task.go(verdict)
        self.laws.check()

    def note(self, who: str, what: Any, how: str = "") -> None:
        self.trace.add(Line(self.turns, self.now_ms, who, what, how))

    def hold(self, task: Task, ms: int) -> None:
        """What `task` is about to do takes so long."""
        until = self.now_ms + ms
        task.held = lambda: self.now_ms < until
        self._held.append(until)

    def next_moment(self) -> int | None:
        """When something happens by itself, if nothing does before."""
        moments = [d for driver in self.drivers if not driver.host.frozen and (d := driver.next_deadline) is not None]
        moments += [until for until in self._held if until > self.now_ms]
        return min(moments, default=None)

    def close(self) -> None:
        """Nothing goes on any more."""
        for host in self.hosts():
            host.die()

    # ---- launches

    def launch_by(self, choose: Callable[[Catalogue], Wanted], mark: str, claim: ClaimMode = NO_CLAIM) -> Host:
        """Somebody begins to start the next generation, from what is wanted when they have read the log."""
        host = self._host(f"launcher {len(self.launchers) + 1}")
        self.launchers.append(host)
        host.spawn("launch", lambda: self._launch(host, choose, f"launch-{len(self.launchers)}-{mark}", claim))
        return host

    def _launch(self, host: Host, choose: Callable[[Catalogue], Wanted], launch: str, claim: ClaimMode) -> None:
        try:
            started = self._claim(host, choose, launch, claim)
        except (SlotTaken, StorageError) as error:
            self.note(host.name, f"does not launch: {error}")
            return
        except HeadgateError as error:
            raise LawBroken(f"a launch fails: {error}") from error
        host.pause(LAUNCHES)
        generation = started.generation
        self.drivers.append(
            SimulatedDriver(
                self._host(f"generation {generation}"),
                self.disk,
                self.databases,
                self.model_of(generation),
                generation,
                launch,
                lambda: self.now_ms,
                self.steps,
                self.laws,
            )
        )

    def _claim(
        self, host: Host, choose: Callable[[Catalogue], Wanted], launch: str, claim: ClaimMode
    ) -> GenerationStarted:
        store = whichever_root(self.disk, host)
        catalogue = read_catalogue(store, STREAM)
        if catalogue.deployed is None:
            raise StorageError("nothing was ever deployed there")
        wanted = choose(catalogue)
        facts = RestoreFacts(
            catalogue=catalogue,
            wanted=wanted,
            damaged={},
            sinks=dict.fromkeys(self.databases, Rollback.RETRACT),
            claim_mode=claim,
        )
        decision = decide_restore(facts)
        if not isinstance(decision, (RestoreFrom, StartFresh)):
            raise LawBroken(f"nothing can be started: {decision.reason}")
        started = GenerationStarted(
            generation=Generation(len(catalogue.generations) + 1),
            decision=decision,
            first_checkpoint=catalogue.next_checkpoint,
            deployed=1,
            by="the simulation",
            host=host.name,
            at_ms=0,
            launch=launch,
            log="",
        )
        claim_slot(slot_log(store, STREAM), STREAM, catalogue.newest_slot, started)
        return started

    def ask(self, request: Request) -> Task:
        """Somebody leaves a request in the mailbox, if storage lets them."""

        def leave() -> None:
            with suppress(HeadgateError):
                Mailbox(whichever_root(self.disk, self._people), STREAM).ask(request)

        return self._people.spawn(f"asks {request.id}", leave)

    def model_of(self, generation: Generation) -> Model:
        """What the driver of `generation` is like."""
        return self.model

    def _host(self, name: str) -> Host:
        return Host(name, self._hub, note=self.note, stray=self._stray)

    def _stray(self, what: str, act: Callable[[], object]) -> None:
        """A call that has failed for who made it arrives some time later."""

        def arrive() -> None:
            with suppress(HeadgateError):
                act()

        task = self._network.spawn("stray", arrive)
        task.at = what
        self.hold(task, self.straying_ms())

    def straying_ms(self) -> int:
        """How long the next stray call is under way."""
        return 100
