"""A driver's process in the simulation: production's lives, heart and judgement, on a host that may die or freeze."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.messages import Acknowledged, Event
from headgate.coordinator.policy import CheckpointOptions
from headgate.driver.ledger import Ledger
from headgate.driver.life import Life
from headgate.driver.lives import Lives, describe_error, is_final
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup, own_launch
from headgate.driver.shared_state import SharedFiles
from headgate.gate.coordinator import GraphCoordinator
from headgate.gate.flow import Flow
from headgate.testing.simulation.database import Database
from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.graph_job import SINK, GraphJob
from headgate.testing.simulation.graph_life import GraphLife, GraphTaker
from headgate.testing.simulation.job import OUT, RECORDS, STREAM
from headgate.testing.simulation.laws import LawBroken, Laws
from headgate.testing.simulation.life import Ask, SimulatedLife
from headgate.testing.simulation.lives import Steps
from headgate.testing.simulation.root import ROOT_ID
from headgate.testing.simulation.taker import SimulatedTaker
from headgate.testing.simulation.turns import Host
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import Fenced, HeadgateError
from headgate_contract.heartbeats import TERMINAL, StreamState
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.records import slot_log
from headgate_contract.root_store import RootStore
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore

PLAN: Any = SimpleNamespace(
    sources=[SimpleNamespace(uid=RECORDS)],
    tasks=[],
    sinks=[SimpleNamespace(vertex=SimpleNamespace(uid=OUT, sink=SINK))],
)
ENGINE: Any = SimpleNamespace(stop=lambda: None, folders=tuple)
"""What production's parts ask of a job's plan and of an engine, besides micro-batches."""


class SimulatedHeart(Heart):
    """Writes the heartbeat whenever the state changes, and holds it to its life-cycle."""

    def __init__(self, store: ObjectStore, stream: StreamName, generation: Generation, steps: Steps) -> None:
        super().__init__(store, stream, generation)
        self._steps = steps

    def become(self, state: StreamState, cause: str | None = None, *, given_up: bool = False) -> None:
        if state is not self.state and self.state not in TERMINAL:
            self._steps.take("driver", self.state.value, state.value)
        super().become(state, cause, given_up=given_up)


class SimulatedLives(Lives):
    """Production's, by the simulation's clock."""

    driver: SimulatedDriver

    def _life(self, setup: LifeSetup) -> SimulatedLife:  # type: ignore[override] # it is all that is asked of one
        self.driver.inbox.clear()
        life_of = SimulatedLife if self.driver.model.graph is None else GraphLife
        self.driver.life = life_of(self.driver, setup)
        return self.driver.life

    def _follow(self, life: Life, failure: Exception, has_run: bool) -> LifeSetup | None:
        if not isinstance(failure, HeadgateError):
            raise LawBroken(
                f"{self.driver.host.name} fails of itself: {type(failure).__name__}: {failure}"
            ) from failure
        return super()._follow(life, failure, has_run)

    def _now(self) -> float:
        return self.driver.clock() / 1000

    def _pause(self, until_s: float) -> None:
        driver, until = self.driver, int(1000 * until_s)
        driver.pausing_until = until
        driver.host.pause("waits for its restart", lambda: driver.clock() >= until or driver.signalled)
        driver.pausing_until = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the drivers of one simulation have in common."""

    records: int
    keys: int
    options: CheckpointOptions
    parallelism: int
    batch: int
    """How many records a micro-batch has, at most."""
    bounded: bool = False
    """The source ends behind the last record."""
    look_ms: int
    """How often a driver looks whether a successor has begun."""
    fold_every: int = 3
    """After so many slots old ones are folded: often, for a log as short as these are."""
    settings: Mapping[str, str] = field(default_factory=lambda: {"restart-strategy.type": "none"})
    ledger_class: type[Ledger] = Ledger
    shared_class: type[SharedFiles] = SharedFiles
    coordinator_class: type[Coordinator] = Coordinator
    graph_coordinator_class: type[GraphCoordinator] = GraphCoordinator
    taker_class: type[SimulatedTaker] = SimulatedTaker
    graph: GraphJob | None = None
    """None: one chain, which numbers the records of each key."""
    graph_taker_class: type[GraphTaker] = GraphTaker
    flow_class: type[Flow] = Flow
    lives_class: type[SimulatedLives] = SimulatedLives
    root_class: type[RootStore] = RootStore

    @property
    def ends_by_itself(self) -> bool:
        """Nothing but its input's end need stop the stream."""
        return self.bounded if self.graph is None else self.graph.bounded.issuperset(self.graph.topology.sources)


@dataclass(eq=False)
class SimulatedDriver:
    """The process of one generation, from its launch on."""

    host: Host
    disk: Disk
    databases: Mapping[VertexUid, Database]
    """Of each sink."""
    model: Model
    generation: Generation
    launch: str
    clock: Callable[[], int]
    steps: Steps
    laws: Laws
    inbox: deque[Event | Ask] = field(default_factory=deque)
    acks: list[Acknowledged] = field(default_factory=list)
    """All that were ever sent: the network may bring one again."""
    coordinator: Coordinator | None = None
    """Of the life that runs."""
    life: SimulatedLife | None = None
    pausing_until: int | None = None
    """Until when it waits to restart."""
    signalled: bool = False
    """SIGTERM has come."""
    batches: int | None = None
    """How many more micro-batches may begin, if somebody counts them."""
    step_fails: bool = False
    """The next micro-batch to end fails."""
    ended: bool = False
    """By itself: stopped, failed or fenced."""
    error: BaseException | None = None
    reached: int = 0
    """How many records its source has handed over."""

    def __post_init__(self) -> None:
        self.store = self.model.root_class(SimulatedStore(self.disk, self.host), ROOT_ID)
        self.heart = SimulatedHeart(self.store, STREAM, self.generation, self.steps)
        self.host.spawn("main", self._main)

    # ---- what the simulation looks at

    @property
    def alive(self) -> bool:
        return not (self.ended or self.host.dead)

    @property
    def tick_is_due(self) -> bool:
        if self.coordinator is None or not self.alive or self.inbox:
            return False
        deadline = self.coordinator.next_deadline()
        return deadline is not None and deadline <= self.clock()

    @property
    def next_deadline(self) -> int | None:
        if not self.alive:
            return None
        if self.pausing_until is not None:
            return self.pausing_until
        return self.life.next_moment() if self.life is not None else None

    @property
    def newest_slot(self) -> int:
        """The newest one that it knows of; 0 before its first life has begun."""
        setup = self.life.setup if self.life is not None else None
        return max(setup.catalogue.newest_slot or 0, setup.slots.newest_known) if setup is not None else 0

    def post(self, event: Event) -> None:
        self.inbox.append(event)
        if isinstance(event, Acknowledged):
            self.acks.append(event)

    # ---- the process

    def _main(self) -> None:
        """As production's `main` does it: live, and tell how it ended; then the process is gone."""
        try:
            self._run()
        except Fenced as error:
            self.error = error
            self.heart.become(StreamState.FENCED, str(error))
        except HeadgateError as error:
            self.error = error
            self.heart.become(StreamState.FAILED, describe_error(error), given_up=is_final(error))
        else:
            self.heart.become(StreamState.STOPPING)
            self.heart.become(StreamState.STOPPED)
        self.ended = True
        self.host.leave()

    def _run(self) -> None:
        catalogue = read_catalogue(self.store, STREAM)
        started = own_launch(catalogue, self.generation, self.launch)
        self.heart.become(StreamState.RESTORING)
        setup = LifeSetup(
            store=self.store,
            stream=STREAM,
            started=started,
            catalogue=catalogue,
            slots=slot_log(self.store, STREAM),
            settings=Settings(self.model.settings),
            plan=PLAN if self.model.graph is None else self.model.graph.plan,
            work=Path(),
            engine=ENGINE,
            points=KillPoints(),
            ledger_class=self.model.ledger_class,
        )
        lives = self.model.lives_class(setup, self.heart)
        lives.driver = self
        lives.run()
