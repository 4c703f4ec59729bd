"""What goes wrong in a simulation: faults of storage at one call, and everything else between two turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.coordinator.messages import Declined
from headgate.testing.simulation.driver import SimulatedDriver
from headgate.testing.simulation.turns import LAUNCHES, Host, Verdict
from headgate_contract.ids import RequestId
from headgate_contract.mailbox import Request, RequestKind

if TYPE_CHECKING:
    from headgate.testing.simulation.world import Simulation

FAULTS = (
    *(f"storage: {verdict.value}" for verdict in Verdict if verdict is not Verdict.GOOD),
    *("storage outage", "sink outage", "root gone", "another root", "older copy of the root"),
    *("crash", "freeze", "wake", "clock jump", "suspicion", "signal"),
    *("duplicate ack", "late ack", "foreign ack", "decline", "slow upload", "failed step"),
)
"""Every kind, as it is printed."""

STORAGE = ("create ", "replace ", "read ", "stat ", "list ", "delete ")
SINK = ("sink: ",)
CALLS = (*STORAGE, *SINK)
"""How a task that is about to call storage or the sink says so."""
WRITES = ("create ", "replace ", "delete ")
"""What may still arrive when who called has given up."""
SLOT = "create streams/simulated/slots"
UPLOAD = "replace streams/simulated/shared"


class Mishaps:
    """Picks what goes wrong next, by the simulation's chance."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._asked = 0
        self._out: dict[tuple[str, ...], int] = {}
        """Until when calls of these kinds are all refused."""

    def happen(self) -> None:
        """One thing; nothing, if what was picked is not possible now."""
        self._simulation.mount.remember()
        what: Callable[[], None] = self._chance.choice(
            (
                *(self._storage_outage, self._sink_outage),
                *(3 * (self._root_away,)),
                *(self._crash, self._freeze, self._wake, self._wake, self._suspect, self._jump, self._signal),
                *(4 * (self._ask,)),
                *(4 * (self._echo,)),
                *(4 * (self._slow,)),
                *(self._decline, self._decline, self._fail_step),
            )
        )
        what()

    def verdict(self, call: str) -> Verdict:
        """How a call to storage or the sink ends."""
        if any(call.startswith(calls) and self._simulation.now_ms < until for calls, until in self._out.items()):
            return Verdict.REFUSED
        if self._chance.random() >= self._simulation.faulty:
            return Verdict.GOOD
        possible: list[Verdict] = [one for one in Verdict if one not in (Verdict.GOOD, Verdict.STRAY)]
        if call.startswith(WRITES):
            possible += [Verdict.STRAY] * (4 if call.startswith(SLOT) else 1)
        verdict = self._chance.choice(possible)
        self._simulation.report.faults[f"storage: {verdict.value}"] += 1
        return verdict

    def _note(self, fault: str, who: str) -> None:
        self._simulation.report.faults[fault] += 1
        self._simulation.note(who, f"*** {fault}")

    # ---- to processes

    def _processes(self) -> list[Host]:
        return [driver.host for driver in self._simulation.drivers] + self._simulation.launchers

    def _storage_outage(self) -> None:
        self._note("storage outage", "storage")
        self._out[STORAGE] = self._simulation.now_ms + self._chance.choice((5, 20, 60))

    def _sink_outage(self) -> None:
        self._note("sink outage", "the sink")
        self._out[SINK] = self._simulation.now_ms + self._chance.choice((20, 60, 200))

    def _root_away(self) -> None:
        """Nobody is about to start the stream while a copy is put there: he would have another one."""
        mount, starting = (
            self._simulation.mount,
            any(not host.dead and host.tasks for host in self._simulation.launchers),
        )
        known = min((driver.newest_slot for driver in self._simulation.live()), default=0)
        possible = mount.possible(known if not starting else 0)
        if possible:
            what = self._chance.choice(sorted(possible))
            self._note(what, "the root")
            mount.happen(possible[what], self._simulation.now_ms)

    def _crash(self) -> None:
        hosts = [host for host in self._processes() if not host.dead and host.tasks]
        if hosts:
            host = self._chance.choice(hosts)
            self._note("crash", host.name)
            host.die()

    def _freeze(self) -> None:
        hosts = [host for host in self._processes() if not host.dead and not host.frozen and host.tasks]
        if hosts:
            self._set_frozen(self._chance.choice(hosts), True)

    def _wake(self) -> None:
        hosts = [host for host in self._processes() if host.frozen and not host.dead]
        if hosts:
            self._set_frozen(self._chance.choice(hosts), False)

    def _set_frozen(self, host: Host, frozen: bool) -> None:
        self._note("freeze" if frozen else "wake", host.name)
        host.frozen = frozen

    def _suspect(self) -> None:
        """Somebody takes a driver for dead, rightly or not: for instance because its host is slow to start it."""
        self._note("suspicion", "somebody")
        for host in self._simulation.hosts():
            for task in host.ready():
                if task.at == LAUNCHES:
                    self._simulation.hold(task, 1_000)
        self._simulation.launch()

    def _jump(self) -> None:
        self._note("clock jump", "the clock")
        self._simulation.now_ms += self._chance.choice((100, 1_000, 10_000))

    def _signal(self) -> None:
        """SIGTERM."""
        drivers = [driver for driver in self._simulation.live() if not driver.signalled]
        if drivers:
            driver = self._chance.choice(drivers)
            self._note("signal", driver.host.name)
            driver.signalled = True

    # ---- to checkpoints

    def _running(self) -> list[SimulatedDriver]:
        return [driver for driver in self._simulation.live() if driver.coordinator is not None]

    def _echo(self) -> None:
        """An ack comes again, or for a snapshot that it is not of, or of somebody who does not belong here."""
        drivers = [driver for driver in self._running() if driver.acks]
        if not drivers:
            return
        driver = self._chance.choice(drivers)
        assert driver.coordinator is not None
        pending = driver.coordinator.pending
        ack = self._chance.choice(driver.acks[-9:])
        kind = "duplicate ack" if ack.checkpoint in pending else "late ack"
        if self._chance.random() < 0.4:
            kind = "foreign ack"
            any_id = self._chance.choice([*pending, ack.checkpoint])
            ack = replace(ack, checkpoint=any_id, participant="state of another job")
        self._note(kind, driver.host.name)
        driver.inbox.append(ack)

    def _decline(self) -> None:
        """A participant gives up, and its ack may follow all the same."""
        drivers = [driver for driver in self._running() if driver.coordinator and driver.coordinator.pending]
        if not drivers:
            return
        driver = self._chance.choice(drivers)
        assert driver.coordinator is not None
        pending = self._chance.choice(list(driver.coordinator.pending.values()))
        participant = self._chance.choice(sorted(driver.coordinator.participants))
        self._note("decline", driver.host.name)
        driver.post(Declined(checkpoint=pending.id, participant=participant, cause="it gave up"))

    def _slow(self) -> None:
        """An upload takes long; checkpoints expire meanwhile, and later ones overtake it."""
        tasks = [task for host in self._simulation.hosts() for task in host.ready() if task.at.startswith(UPLOAD)]
        if tasks:
            task = self._chance.choice(tasks)
            self._note("slow upload", f"{task.host.name}, {task.name}")
            self._simulation.hold(task, self._chance.choice((20, 100, 1_000)))

    def _fail_step(self) -> None:
        """The running micro-batch, or the next one, fails."""
        drivers = self._running()
        if drivers:
            driver = self._chance.choice(drivers)
            self._note("failed step", driver.host.name)
            driver.step_fails = True

    # ---- what people ask for

    def _ask(self) -> None:
        """Somebody leaves a request in the mailbox, for the generation that they take for the running one."""
        drivers = self._running()
        if not drivers:
            return
        self._asked += 1
        driver = self._chance.choice(drivers)
        name = self._chance.choice(("a", "b", f"s{self._asked}"))
        whats = ("savepoint", "savepoint", "checkpoint", "stop", "stop with savepoint", "stop with drain", "cancel")
        what = self._chance.choice(whats)
        self._simulation.report.seen[f"asked: {what}"] += 1
        kind, _, named = what.partition(" with ")
        drain = {"drain": True} if named == "drain" else {}
        request = Request(
            id=RequestId(f"request-{self._asked}"),
            kind=RequestKind(kind),
            generation=driver.generation,
            args={"savepoint": name, **drain} if named else {"name": name} if kind == "savepoint" else {},
            deadline_ms=1_000,
            by="somebody",
            at_ms=0,
            nonce=str(self._asked),
        )
        self._simulation.ask(request)
