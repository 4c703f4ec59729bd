"""One simulation: from a seed, a stream's life with everything that may go wrong, and then an end in peace."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.simulation.driver import Model, SimulatedDriver
from headgate.testing.simulation.graph_job import options_for, random_graph
from headgate.testing.simulation.laws import LawBroken
from headgate.testing.simulation.lives import IllegalStep
from headgate.testing.simulation.mishaps import CALLS, Mishaps
from headgate.testing.simulation.report import Report
from headgate.testing.simulation.root import Mount
from headgate.testing.simulation.scene import Scene
from headgate.testing.simulation.trace import Trace
from headgate.testing.simulation.turns import Task, Verdict
from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import Generation
from headgate_contract.restore import ClaimMode, Named, Newest, Wanted

LONGEST = 30_000
"""Turns in peace, until the stream must have stopped."""

RESTARTS: tuple[Mapping[str, str], ...] = (
    {"restart-strategy.type": "none"},
    {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"},
    {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "50 ms",
        "restart-strategy.fixed-delay.attempts": "3",
    },
    {
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.delay": "10 ms",
        "restart-strategy.failure-rate.max-failures-per-interval": "4",
    },
    {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "5 ms",
        "restart-strategy.exponential-delay.max-backoff": "100 ms",
    },
)
"""Whether and when a failed life is followed by another in the same driver."""


def _as_it_is(model: Model) -> Model:
    return model


class Simulation(Scene):
    """A stream under one seed; `change` plants a fault in what production does."""

    def __init__(self, seed: int, change: Callable[[Model], Model] = _as_it_is, trace: Trace | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        super().__init__(change(self._draw()), trace)
        self.report = Report(seed)
        self.faulty = self.chance.choice((0.0, 0.01, 0.05))
        self.rough = self.chance.choice((0.0, 0.01, 0.03))
        self.peaceful = False
        self.mount = Mount(self.disk, self.chance)
        self.mishaps = Mishaps(self)

    def _draw(self) -> Model:
        chance = self.chance
        options = CheckpointOptions(
            interval_ms=chance.choice((10, 20, 40, 80)),
            timeout_ms=chance.choice((60, 300, 3000)),
            min_pause_ms=chance.choice((0, 0, 0, 15)),
            max_concurrent=chance.choice((1, 1, 2, 3)),
            retained=chance.choice((1, 2, 3, 5)),
            tolerable_failures=chance.choice((0, 2, 1000)),
        )
        model = Model(
            records=chance.randrange(20, 80),
            keys=chance.randrange(1, 8),
            options=options,
            parallelism=chance.randrange(1, 4),
            batch=chance.randrange(1, 8),
            bounded=chance.random() < 0.3,
            look_ms=chance.choice((20, 100, 1_000)),
            settings=chance.choice(RESTARTS),
        )
        if chance.random() < 0.5:
            return model
        graph = random_graph(chance)
        total = graph.records * len(graph.topology.sources)
        return replace(model, graph=graph, records=total, options=options_for(graph, options, chance))

    def run(self) -> Report:
        """Live through it. What broke a law is in the report."""
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
            self.report.turns, self.report.steps = self.turns, self.steps.seen
            if self.report.broken is not None:
                self.report.trace = self.trace.lines()
            self.close()
        return self.report

    def step(self) -> None:
        """One turn of whoever is chosen, or something that happens to them."""
        self.turns += 1
        self.now_ms += self.chance.randrange(3)
        self.mount.tick(self.now_ms)
        self.tick()
        if not self.peaceful and self.chance.random() < self.rough:
            self.mishaps.happen()
            return
        tasks = self.ready()
        if tasks:
            self._turn(self.chance.choice(tasks))
        else:
            self._idle()

    def _turn(self, task: Task) -> None:
        goes_wrong = not self.peaceful and task.at.startswith(CALLS)
        self.turn(task, self.mishaps.verdict(task.at) if goes_wrong else Verdict.GOOD)

    def _idle(self) -> None:
        moments = (self.next_moment(), self.mount.until_ms)
        moment = min((moment for moment in moments if moment is not None), default=None)
        if moment is not None:
            self.now_ms = max(self.now_ms, moment)
        elif not self.live() and not any(not host.dead and host.tasks for host in self.launchers):
            self.launch()
        elif not self.peaceful:
            self.mishaps.happen()

    def launch(self) -> None:
        """Somebody starts the next generation, most often from the newest snapshot."""
        if self.mount.is_copy:
            return
        older = not self.peaceful and self.chance.random() < 0.4
        claim = self.chance.choice(tuple(ClaimMode))
        self.report.seen[f"launch: {claim.value}"] += older
        self.launch_by(lambda catalogue: self._wanted(catalogue, older), str(self.chance.getrandbits(32)), claim)

    def _wanted(self, catalogue: Catalogue, older: bool) -> Wanted:
        older = older and bool(catalogue.snapshots)
        self.report.seen["launch: older" if older else "launch: newest"] += 1
        return Named(self.chance.choice(catalogue.snapshots).id) if older else Newest()

    def straying_ms(self) -> int:
        return self.chance.choice((5, 50, 500))

    def model_of(self, generation: Generation) -> Model:
        """Each generation may have another parallelism."""
        return replace(self.model, parallelism=random.Random(f"{self.seed}/{generation}").randrange(1, 5))

    # ---- the end

    def _end_in_peace(self) -> None:
        """Nothing goes wrong any more: the stream is read to its end and stops."""
        self.peaceful = True
        self.mount.bring_back()
        for host in self.hosts():
            host.frozen = False
        stopping: SimulatedDriver | None = None
        for _ in range(LONGEST):
            self.step()
            live = self.live()
            if self._is_over(stopping):
                break
            if not self.model.ends_by_itself and (stopping is None or not stopping.alive):
                stopping = None
                done = [driver for driver in live if driver.coordinator is not None and _has_read_all(driver)]
                if done and not any(host.tasks and not host.dead for host in self.launchers if host.ready()):
                    stopping = max(done, key=lambda driver: driver.generation)
                    stopping.signalled = True
            if not live and not any(host.ready() for host in self.launchers):
                self.launch()
        else:
            raise LawBroken(f"the stream does not stop within {LONGEST} turns in peace")
        self._let_everybody_end()
        self.laws.check_end()
        self._look_back()

    def _is_over(self, stopping: SimulatedDriver | None) -> bool:
        if self.laws.stopped_with != self.model.records:
            return False  # it may have failed in between, and stopped as told before it had read all again
        if self.model.ends_by_itself:
            return self.laws.input_ended
        return stopping is not None and stopping.ended

    def _let_everybody_end(self) -> None:
        for _ in range(LONGEST):
            tasks = self.ready()
            if not tasks:
                break
            self.turns += 1
            self._turn(self.chance.choice(tasks))

    def _look_back(self) -> None:
        seen = self.report.seen
        for driver in self.drivers:
            how = "crashed" if driver.host.dead and not driver.ended else "ended"
            kind = "well" if driver.error is None else type(driver.error).__name__
            seen[f"driver: {how} {kind if how == 'ended' else ''}".strip()] += 1
        seen["snapshots"] += len(self.laws.completed)
        seen.update(self.laws.seen())
        seen["retired"] += len(self.laws.retired)


def _has_read_all(driver: SimulatedDriver) -> bool:
    return driver.life is not None and driver.life.has_read_all()
