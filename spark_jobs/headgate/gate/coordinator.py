"""The coordinator of a job with channels: its barriers go through the flow, and pass each task at its own moment. Pure.

All that it adds to the coordinator of one chain is what stands between the tasks. A checkpoint's parts are asked for as
the gates tell that its barrier has passed them; from the acks on, everything is as it is there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut, least
from headgate.coordinator.messages import Action, Event, NotifyAborted, SourceEnded, Stored, Trigger
from headgate.coordinator.newest import Content
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.gate.elements import Barrier, Batch, Data, EndOfInput, Json, Watermark
from headgate.gate.flow import Ended, Flow, InFlight, Passed, Refused, Run, Told
from headgate.gate.messages import BatchTaken, ElementDone, FinishTask, HandedOver, RunElement, SourcesRun
from headgate.gate.silence import Silence
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId, VertexUid

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TaskParts:
    """Whose parts of a snapshot a task's barrier brings."""

    state: VertexUid | None = None
    sources: tuple[VertexUid, ...] = ()
    sinks: tuple[VertexUid, ...] = ()

    def at_barrier(self) -> frozenset[str]:
        """Known when it passes."""
        state = [f"state {self.state}"] if self.state is not None else []
        return frozenset([*state, *(f"sink {uid}" for uid in self.sinks)])

    def behind(self, task: VertexUid) -> frozenset[str]:
        """Known when everything that it has overtaken is: all of it, so a task without state has a part, too."""
        return frozenset([f"inputs {task}", *(f"source {uid}" for uid in self.sources)])

    def all(self, task: VertexUid) -> frozenset[str]:
        return self.at_barrier() | self.behind(task)


@dataclass(kw_only=True)
class GraphCoordinator(Coordinator):
    """`cut` is that of everybody only at the start; from then on each task has its own."""

    flow: Flow
    tasks: Mapping[VertexUid, TaskParts]
    """Each behind those that it reads from."""
    idle_after_ms: Mapping[VertexUid, int] = field(default_factory=dict)
    """The sources that hold up nobody when they have been silent for so long."""
    cuts: dict[VertexUid, Cut] = field(default_factory=dict)
    """Of each task: what its next element is run on top of."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cuts = {
            task: replace(self.cut.of(_of_one(parts.state)), finished=self.cut.finished & {task})
            for task, parts in self.tasks.items()
        }
        self._offered: dict[VertexUid, Batch] = {}
        """What sources have handed over, and there was no room for."""
        self._idle = set(self.tasks)
        self.filled: dict[str, int] = {}
        """How many micro-batches wait in each channel; for any thread to read."""
        self.watermark_ms: int | None = None
        """How far event time has come at all tasks; for any thread to read."""
        self._known: dict[tuple[CheckpointId, VertexUid], Watermarks] = {}
        """At the barriers that have passed a task, and not all that they have overtaken is known."""
        self._silence = Silence(self.idle_after_ms)
        self._finishing: deque[VertexUid] = deque()
        """The tasks whose operators have still to finish before a stop, in order."""
        self.through: set[VertexUid] = set()
        """The tasks that have finished because nothing comes to them any more."""
        self._newest.content = self._content()

    # ---- questions

    def next_deadline(self) -> int | None:
        moments = [super().next_deadline()]
        if not self.ended and not self._doom:
            moments += [self.flow.next_deadline(), self._silence.next_deadline()]
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def is_through(self) -> bool:
        return self.through == set(self.tasks)

    def pinned_files(self) -> frozenset[str]:
        batches = [*self.flow.batches(), *self.flow.noted()]
        held = [handle for batch in batches if batch.before is None for handle in batch.content]
        held += [
            handle
            for pending in self.pending.values()
            for elements in pending.in_flight.values()
            for element in elements
            for handle in element.get("files", ())
        ]
        return frozenset(str(handle["name"]) for handle in held)

    # ---- events

    def _take_in(self, event: Event, now_ms: int) -> list[Action]:
        match event:
            case HandedOver(source=source, batch=batch):
                self._offered[source] = batch
                return []
            case SourcesRun():
                self._silence.counts = True
                return []
            case SourceEnded(source=source):
                return self._follow(self.flow.put(source, EndOfInput(), now_ms), now_ms)
            case ElementDone():
                return self._element_done(event, now_ms)
        actions = super()._take_in(event, now_ms)
        if isinstance(event, Stored):
            self._over(event.checkpoint)
        return actions

    def _element_done(self, event: ElementDone, now_ms: int) -> list[Action]:
        self.cuts[event.task] = self.cuts[event.task].after(event.result)
        self.output.stage(event.result.staged)
        self._idle.add(event.task)
        if not self.flow.is_running(event.task):  # its operators have finished
            told = self.flow.pass_on(event.task, event.made, now_ms)
            told += self._pass_end(event.task, now_ms) if self.flow.gates[event.task].finished else []
            return self._follow(told, now_ms)
        known = event.result.watermark_ms
        watermark = None if known is None else Watermark(known)
        return self._follow(self.flow.done(event.task, event.made, now_ms, watermark), now_ms)

    def _barriers(self, now_ms: int) -> list[Action]:
        actions = [*self._go_on(now_ms), *super()._barriers(now_ms), *self._go_on(now_ms)]
        self.filled, self.watermark_ms = self.flow.filled(), least(map(self.flow.watermark_ms, self.tasks))
        return actions

    def _go_on(self, now_ms: int) -> list[Action]:
        """Whatever can be put and taken now, until nothing moves any more."""
        actions = self._follow(self.flow.tick(now_ms), now_ms)
        for source in self._silence:
            silent = source not in self._offered and self.flow.is_silent(source)
            if self._silence.look(source, now_ms, silent=silent):
                actions += self._follow(self.flow.put(source, Watermark(None), now_ms), now_ms)
        moved = True
        while moved and self._doom is None:
            moved = False
            for source in [each for each in sorted(self._offered) if self.may_begin and self.flow.has_room(each)]:
                told = self.flow.put(source, self._offered.pop(source), now_ms)
                actions += [*self._follow(told, now_ms), BatchTaken(source=source)]
                moved = True
            for task in [each for each in self.tasks if each in self._idle]:
                told = self.flow.take(task, now_ms)
                actions += self._follow(told, now_ms)
                moved = moved or bool(told)
        return [*actions, *self._finish_next()] if self.busy else actions

    def _cut_of(self, task: VertexUid) -> Cut:
        """What its next element is run on top of, and how far event time has come there."""
        return replace(self.cuts[task], watermark_ms=self.flow.watermark_ms(task))

    def _follow(self, told: Iterable[Told], now_ms: int) -> list[Action]:
        """What is to be done about what the flow has told."""
        actions: list[Action] = []
        waiting = deque(told)
        while waiting:
            match each := waiting.popleft():
                case Run(task=task, element=Watermark()):  # nobody has timers
                    waiting += self.flow.done(task, {}, now_ms)
                case Run(task=task, channel=channel, element=Batch() as batch):
                    self._idle.discard(task)
                    actions.append(RunElement(task=task, channel=channel, batch=batch, cut=self._cut_of(task)))
                case Passed():
                    actions += self._passed(each)
                case InFlight():
                    actions += self._in_flight(each)
                case Refused(checkpoint=checkpoint, task=task, reason=reason):
                    actions += self._abort(checkpoint, reason, f"at {task}: {reason.told}", now_ms)
                case Ended(task=task) if self.stop is None or not self.stop.finishing:  # else it is told to finish
                    log.info("nothing comes to task %s any more", task)
                    if self._has_finished(task):
                        waiting += self._pass_end(task, now_ms)
                    else:
                        actions.append(self._finish_task(task))
        return actions

    def _has_finished(self, task: VertexUid) -> bool:
        return self.tasks[task].state is None or bool(self.cuts[task].finished)

    def _finish_task(self, task: VertexUid) -> FinishTask:
        self._idle.discard(task)
        return FinishTask(task=task, cut=self._cut_of(task))

    def _pass_end(self, task: VertexUid, now_ms: int) -> list[Told]:
        self.through.add(task)
        return self.flow.end(task, now_ms)

    # ---- barriers

    def _barrier(self, trigger: Trigger, now_ms: int) -> list[Action]:
        pending = self._begin(trigger, now_ms)
        pending.cut = Cut(epoch=0, records=self.cut.records)
        overtakes = None if trigger.is_savepoint or trigger.stop else self.options.overtakes_after_ms
        barrier = Barrier(checkpoint=pending.id, started_ms=now_ms, overtakes_after_ms=overtakes)
        return self._follow(self.flow.inject(barrier, now_ms), now_ms)

    def _passed(self, told: Passed) -> list[Action]:
        """The state of the task, and what it has staged for its sinks."""
        if not self._collects(told.checkpoint):
            return []
        parts = self.tasks[told.task]
        staged = self.output.barrier(told.checkpoint, parts.sinks)
        self._known[told.checkpoint, told.task] = told.watermarks
        joinable = self._is_first(told.checkpoint)
        return self._take_part(
            told.checkpoint, self.cuts[told.task], parts.at_barrier(), staged=staged, joinable=joinable
        )

    def _in_flight(self, told: InFlight) -> list[Action]:
        """Where its sources are to be read again from, and what else had not come to it."""
        known = self._known.pop((told.checkpoint, told.task), None)
        if known is None:  # it was given up meanwhile
            return []
        in_flight = {str(id): tuple(map(_plain, elements)) for id, elements in told.channels.items()}
        self.pending[told.checkpoint].watermarks[told.task] = _levels(known)
        return self._take_part(
            told.checkpoint,
            Cut(epoch=0, positions=told.positions),
            self.tasks[told.task].behind(told.task),
            in_flight=in_flight,
            watermarks=_levels(known),
        )

    def _content(self) -> Content:
        """What barriers would find that overtook all that is in flight."""
        parts = [*self.cuts.values()]
        found = self.flow.in_flight(self.next_id)
        parts += [Cut(epoch=0, positions=each.positions) for each in found]
        held = {id: elements for each in found for id, elements in each.channels.items() if elements}
        return Content(
            cut=reduce(Cut.plus, parts, Cut(epoch=0, records=self.cut.records)),
            in_flight={str(id): tuple(map(_plain, elements)) for id, elements in held.items()},
            watermarks={task: _levels(gate.watermarks) for task, gate in self.flow.gates.items()},
        )

    def _would_find(self) -> Content | None:
        """Where they do not overtake at once, what is on its way has still to come to the tasks."""
        overtakes = self.options.overtakes_after_ms == 0 and self.flow.exactly_once
        if not overtakes and not self.is_dry:
            return None
        content = self._content()
        return content if overtakes or not content.in_flight else None

    def _as_of_ms(self) -> int | None:
        """Barriers that may overtake leave out what a source has handed over and no task is done with."""
        overtakes = self.options.overtakes_after_ms is not None and self.flow.exactly_once
        return super()._as_of_ms() if self.is_dry or not overtakes else None

    def _take_part(self, checkpoint: CheckpointId, part: Cut, parts: frozenset[str], **what: Any) -> list[Action]:
        pending = self.pending[checkpoint]
        pending.cut = pending.cut.plus(part)
        pending.in_flight.update(what.get("in_flight", {}))
        return [pending.take(part, parts, pending.trigger.due_ms, **what)] if parts else []

    def _aborted(self, checkpoint: CheckpointId, reason: CheckpointFailureReason, cause: str) -> NotifyAborted:
        self._over(checkpoint)
        self.flow.abort(checkpoint)
        return super()._aborted(checkpoint, reason, cause)

    def _over(self, checkpoint: CheckpointId) -> None:
        self._known = {key: known for key, known in self._known.items() if key[0] != checkpoint}
        self.flow.over(checkpoint)

    # ---- the end

    @property
    def _last_barrier_due(self) -> bool:
        """Before that of a drain, nothing may be left anywhere."""
        begins_to_drain = self.stop is not None and self.stop.trigger.drain and not self.stop.finishing
        return super()._last_barrier_due and not (begins_to_drain and not self.is_dry)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is on its way: in no channel, and in no task's hands."""
        return not self.flow.holds_batches and self._idle == set(self.tasks)

    def _finish(self) -> list[Action]:
        self._finishing = deque(self.tasks)
        return self._finish_next()

    def _finish_next(self) -> list[Action]:
        """One task after the other, each when everything has come to it that those before it made in the end.

        Whether it has finished already is asked then: what they made may have come to it since.
        """
        if not self.is_dry:
            return []
        while self._finishing:
            task = self._finishing.popleft()
            if not self._has_finished(task):
                return [self._finish_task(task)]
        self.busy = False
        return []


def _of_one(vertex: VertexUid | None) -> tuple[VertexUid, ...]:
    return (vertex,) if vertex is not None else ()


def _plain(element: Data) -> Json:
    if isinstance(element, Watermark):
        return {"watermark_ms": element.ms}
    return {"rows": element.rows, "files": list(element.content)}


def _levels(known: Watermarks) -> Json:
    return {
        "passed": known.passed,
        "inputs": {str(id): {"ms": level, "idle": id in known.idle} for id, level in known.levels.items()},
    }
