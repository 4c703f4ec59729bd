"""Tasks that take turns: each runs until it touches storage, and goes on when the simulation says so, and how."""

from __future__ import annotations

import enum
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import greenlet

from headgate_contract.errors import StorageError

T = TypeVar("T")

LAUNCHES = "launches the driver"
"""Where a launcher stands that has claimed its slot."""


class Verdict(enum.Enum):
    """What becomes of one call to storage."""

    GOOD = "good"
    REFUSED = "refused"
    LOST_ANSWER = "lost answer"
    TWICE = "twice"
    LATE = "late"
    STRAY = "arrives after its failure"


class Dead(greenlet.GreenletExit):
    """The host of a task is gone: nothing of it goes on."""


@dataclass(eq=False)
class Task:
    """One thread of a host, as a greenlet."""

    host: Host
    name: str
    run: Callable[[], object]
    waits_for: Callable[[], bool] | None = None
    """Until when it has nothing to do."""
    at: str = "begins"
    """Where it stands: the call that it is about to make."""
    held: Callable[[], bool] | None = None
    """While this says so, it is not its turn: what it does takes long."""

    def __post_init__(self) -> None:
        self._greenlet = greenlet.greenlet(self.run, self.host.hub)

    @property
    def ended(self) -> bool:
        return bool(self._greenlet.dead)

    @property
    def ready(self) -> bool:
        if self.ended or (self.held is not None and self.held()):
            return False
        return self.waits_for is None or self.waits_for()

    def go(self, verdict: Verdict = Verdict.GOOD) -> None:
        """Let it run until its next pause, where it gets `verdict`."""
        self.waits_for = self.held = None
        before, self.host.current = self.host.current, self
        try:
            self._greenlet.switch(verdict) if self._greenlet else self._greenlet.switch()
        finally:
            self.host.current = before

    def kill(self) -> None:
        if self._greenlet:
            self._greenlet.throw(Dead)


@dataclass(eq=False)
class Host:
    """A process: its tasks die together, and freeze together."""

    name: str
    hub: greenlet.greenlet
    """Who gives the turns."""
    tasks: list[Task] = field(default_factory=list)
    dead: bool = False
    frozen: bool = False
    current: Task | None = None
    note: Callable[[str, object], None] = lambda who, what: None
    """Told of what its tasks do within a turn."""
    stray: Callable[[str, Callable[[], object]], None] = lambda what, act: None
    """Takes a call that has failed for who made it, and is carried out some time later."""

    def say(self, what: object) -> None:
        """Called by a task: note what it takes in, or wants."""
        self.note(f"{self.name}, {self.current.name}" if self.current else self.name, what)

    def spawn(self, name: str, run: Callable[[], object]) -> Task:
        task = Task(self, name, run)
        self.tasks.append(task)
        return task

    def ready(self) -> list[Task]:
        """The tasks that could go on now."""
        if self.dead or self.frozen:
            return []
        self.tasks = [task for task in self.tasks if not task.ended]
        return [task for task in self.tasks if task.ready]

    def pause(self, at: str, until: Callable[[], bool] | None = None) -> Verdict:
        """Called by a task: wait for its turn."""
        task = self.current
        if self.dead or task is None:
            raise Dead
        task.at, task.waits_for = at, until
        verdict = self.hub.switch()
        if self.dead:
            raise Dead
        return verdict if isinstance(verdict, Verdict) else Verdict.GOOD

    def call(self, what: str, act: Callable[[], T]) -> T:
        """One call to storage or to the sink, which ends as the simulation says."""
        verdict = self.pause(what)
        if verdict is Verdict.REFUSED:
            raise StorageError(f"cannot {what}: it is refused")
        if verdict is Verdict.STRAY:
            self.stray(what, act)
            raise StorageError(f"no answer to {what}")
        if verdict is Verdict.TWICE:
            act()
        result = act()
        if verdict in (Verdict.LOST_ANSWER, Verdict.LATE):
            self.pause(f"waits for the answer to {what}")
        if verdict is Verdict.LOST_ANSWER:
            raise StorageError(f"no answer to {what}")
        return result

    def leave(self) -> None:
        """Called by a task: the process ends, and its other tasks with it."""
        self.dead = True
        for task in self.tasks:
            if task is not self.current:
                task.kill()
        self.tasks.clear()

    def die(self) -> None:
        """SIGKILL: whatever its tasks were doing, they do no more."""
        self.dead = True
        for task in self.tasks:
            task.kill()
        self.tasks.clear()


class Turns(Executor):
    """An executor of one worker whose work is done in turns."""

    def __init__(self, host: Host, name: str) -> None:
        self._queue: list[Callable[[], object]] = []
        self._closed = False
        self._host = host
        host.spawn(name, self._work)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._queue.append(lambda: fn(*args, **kwargs))
        return Future()

    @property
    def idle(self) -> bool:
        return not self._queue

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What is queued is still done."""
        self._closed = True

    def _work(self) -> None:
        while self._queue or not self._closed:
            self._host.pause("waits for work", lambda: bool(self._queue) or self._closed)
            if self._queue:
                self._queue[0]()
                self._queue.pop(0)
