"""Stops streams: the wish first, so that nobody restarts them, then the request to the driver, then its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import LogDamaged, RequestFailed, RequestTimedOut, StreamNotRunning
from headgate_contract.heartbeats import TERMINAL
from headgate_contract.ids import CheckpointId, Generation, RequestId, StreamName
from headgate_contract.mailbox import Answer, RequestKind
from headgate_contract.records import StopWanted
from headgate_control.catalogues import Catalogues
from headgate_control.journal import Journal, now_ms
from headgate_control.outcomes import Asked, Condition, ProcessSign, StreamStatus
from headgate_control.processes import kill_group, sign_of, wait_gone
from headgate_control.requests import Requests, dead_note, in_directory, made_up_id, savepoint_name
from headgate_control.status import Observer
from headgate_control.telling import not_running
from headgate_control.unread import Unread

_CANCEL_S = 30.0
_TO_RESTORE = "to restore it"
_ENDING_S = 20.0
"""How long a driver that has stopped may take to close Spark before its process is ended."""


@dataclass(frozen=True, kw_only=True)
class StopOrder:
    """Which stop is wanted, and by whom."""

    by: str
    savepoint: bool | str = False
    target: str | None = None
    """The directory for the savepoint."""
    drain: bool = False
    """The operators finish before the savepoint, which is taken then in any case."""
    id: RequestId | None = None
    """Of the request; None for one that nobody will repeat."""
    wait: bool = True
    timeout_s: float | None = None
    keep: CheckpointId | None = None
    """A checkpoint that is restored next: the last one of this life does not retire it."""
    to_restore: bool = False
    """It is to go on at once: whoever stops it meanwhile wants something else."""


@dataclass(frozen=True, kw_only=True)
class Stopper:
    """Stops the streams of one root."""

    catalogues: Catalogues
    observer: Observer
    requests: Requests
    journal: Journal

    def stop(self, stream: StreamName, order: StopOrder) -> Asked:
        """Stop at the next barrier. Raises StreamNotRunning if a savepoint is wanted and nobody is left to take it."""
        name = savepoint_name(order.savepoint or order.drain)
        args = {"savepoint": name, "drain": order.drain} | in_directory(order.target)
        if order.keep is not None:
            args["keep"] = int(order.keep)
        return self._end(stream, RequestKind.STOP, order, args, wants=name is not None)

    def cancel(self, stream: StreamName, order: StopOrder) -> Asked:
        """End it now. A driver on this host that does not answer is killed."""
        return self._end(stream, RequestKind.CANCEL, order, {}, wants=False)

    def _end(
        self, stream: StreamName, kind: RequestKind, order: StopOrder, args: dict[str, object], *, wants: bool
    ) -> Asked:
        try:
            return self._end_by_the_log(stream, kind, order, args, wants=wants)
        except LogDamaged as error:
            patience = _CANCEL_S if kind is RequestKind.CANCEL and order.timeout_s is None else order.timeout_s
            with self.journal.action(stream, kind.value, order.by, args, error.what) as note:
                unread = Unread(store=self.requests.store, stream=stream, fault=error)
                asked = unread.end(kind, order.id, args, order.by, patience)
                note.text = asked.note
                return asked

    def _end_by_the_log(
        self, stream: StreamName, kind: RequestKind, order: StopOrder, args: dict[str, object], *, wants: bool
    ) -> Asked:
        catalogue = self.catalogues.read(stream)
        id = self.requests.current(stream, order.id) if order.id is not None else made_up_id(kind)
        done = self._done_already(stream, catalogue, id, order, wants=wants)
        if done is not None:
            return done
        with self.journal.action(stream, kind.value, order.by, args) as note:
            self.requests.check_target(catalogue, order.target)
            status = self._want_stopped(stream, id, order.by, _TO_RESTORE if order.to_restore else kind.value)
            note.generation = status.generation
            try:
                asked = self._ask(stream, kind, id, order, args)
            except StreamNotRunning:
                status = self._leave_word(stream, kind, id, order, args)
                note.text = dead_note(status)
                if wants:
                    raise self._not_at_the_end(stream, id, status) from None
                return Asked(stream=stream, request=None, note=note.text)
            except RequestFailed:
                status = self.observer.status(stream)
                if wants or status.condition is not Condition.STOPPED:
                    raise
                note.text = dead_note(status)  # nobody is left to answer, and it stays so: that is what was wanted
                return Asked(stream=stream, request=None, note=note.text)
            note.text = asked.note
            return asked

    def _not_at_the_end(self, stream: StreamName, id: RequestId, status: StreamStatus) -> StreamNotRunning:
        """What to tell of the savepoint of a stop whose driver is gone."""
        taken = self.requests.taken_for(stream, id)
        if taken is None:
            return StreamNotRunning(f"no savepoint was taken: {dead_note(status)}", hint=_newest_snapshot(status))
        return StreamNotRunning(
            f"{taken} was taken by this very request, but its driver did not come to the end: {dead_note(status)}; "
            f"it is complete, at {taken.where}",
            hint=f"output that it holds may not be published yet: the next start does that (`headgate start {stream}`)",
        )

    def _leave_word(
        self, stream: StreamName, kind: RequestKind, id: RequestId, order: StopOrder, args: dict[str, object]
    ) -> StreamStatus:
        """A driver that is only frozen may wake: it then finds the request. One that is cancelled here is killed."""
        status = self.observer.status(stream)
        if status.state in TERMINAL or status.process_sign is ProcessSign.GONE:
            return status
        self.requests.ask(stream, kind, by=order.by, id=id, args=args, anyhow=True)
        if kind is RequestKind.CANCEL and status.process is not None and kill_group(status.process):
            wait_gone(status.process, _ENDING_S)
        return self.observer.status(stream)

    def _done_already(
        self, stream: StreamName, catalogue: Catalogue, id: RequestId, order: StopOrder, *, wants: bool
    ) -> Asked | None:
        """What there is to say of a stream that does not run and that nobody needs to stop."""
        stopped = catalogue.stopped
        if catalogue.newest_generation is not None and stopped is None:
            return None
        answer = self.requests.answer(stream, id)
        if stopped is not None and answer is not None:
            return Asked(stream=stream, request=None, answer=answer, note="it was stopped by this very request")
        status = self.observer.status(stream)
        wish = status.stop_wanted
        if wish is not None and wish.reason == _TO_RESTORE and wish.request != id:  # else it would go on at once
            self.catalogues.decide(stream, replace(wish, by=order.by, reason="stop", at_ms=now_ms(), request=None))
        if wants or catalogue.newest_generation is None:
            raise StreamNotRunning(not_running(status), hint=_newest_snapshot(status))
        return Asked(stream=stream, request=None, note=f"nothing to do: {status.text}")

    def _want_stopped(self, stream: StreamName, id: RequestId, by: str, reason: str) -> StreamStatus:
        """Record the wish for the newest generation, and again if another one was launched meanwhile."""
        marked: Generation | None = None
        while True:
            status, _ = self.observer.look(stream)
            if status.generation is None or status.generation == marked:
                return status
            marked, standing = status.generation, status.stop_wanted
            if standing is None or standing.request not in (None, id):
                wish = StopWanted(generation=marked, by=by, reason=reason, at_ms=now_ms(), request=id)
                self.catalogues.decide(stream, wish)

    def _ask(
        self, stream: StreamName, kind: RequestKind, id: RequestId, order: StopOrder, args: dict[str, object]
    ) -> Asked:
        request = self.requests.ask(stream, kind, by=order.by, id=id, args=args)
        if request.id != id:  # the try before has failed just now, and the wish with it
            self._want_stopped(stream, request.id, order.by, _TO_RESTORE if order.to_restore else kind.value)
        if not order.wait:
            return Asked(stream=stream, request=request)
        answer, note = self._answer(stream, kind, request.id, order.timeout_s)
        return Asked(stream=stream, request=request, answer=answer, note=note)

    def _answer(
        self, stream: StreamName, kind: RequestKind, id: RequestId, timeout_s: float | None
    ) -> tuple[Answer | None, str]:
        if timeout_s is None:
            patience = self.requests.patience(self.catalogues.read(stream)).seconds
            timeout_s = _CANCEL_S if kind is RequestKind.CANCEL else patience
        try:
            answer = self.requests.wait(stream, id, timeout_s)
        except RequestFailed as error:
            if kind is not RequestKind.CANCEL:
                raise
            return None, self._kill(stream, error)
        self._see_off(stream)
        return answer, ""

    def _kill(self, stream: StreamName, error: RequestFailed) -> str:
        """A cancelled driver did not end by itself."""
        status = self.observer.status(stream)
        if not status.live:
            return dead_note(status)
        if status.process is None or status.process_sign is not ProcessSign.ALIVE:
            raise RequestTimedOut(error.what, hint=f"its driver is on {status.host}: end its process there") from error
        kill_group(status.process)
        wait_gone(status.process, _ENDING_S)
        return f"its driver did not answer: process group {status.process.pid} on {status.host} was killed"

    def _see_off(self, stream: StreamName) -> None:
        """The log says that the generation has ended: its process, if it is on this host, closes Spark and goes."""
        process = self.observer.status(stream).process
        if process is not None and sign_of(process) is ProcessSign.ALIVE and not wait_gone(process, _ENDING_S):
            kill_group(process)


def _newest_snapshot(status: StreamStatus) -> str:
    if status.generation is None:
        return "there is nothing to stop"
    if status.newest_snapshot is None:
        return f"stream {status.stream} has no snapshot"
    return f"its newest snapshot is {status.newest_snapshot}"
