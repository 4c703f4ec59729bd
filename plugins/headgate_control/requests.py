"""Asks drivers for things through the mailbox, waits for their answers, and stops them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headgate_contract.catalogue import Catalogue
from headgate_contract.durations import Duration
from headgate_contract.errors import (
    Conflict,
    InvalidName,
    RequestFailed,
    RequestTimedOut,
    StreamNotRunning,
)
from headgate_contract.ids import RequestId, SavepointName, StreamName
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.places import Places
from headgate_contract.records import SnapshotCompleted, Stopped
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.journal import now_ms
from headgate_control.outcomes import StreamStatus
from headgate_control.status import Observer, settings_of_newest
from headgate_control.telling import not_running

_POLL_S = 0.15
_TARGET = "target_directory"
_LOOK_EVERY_S = 1.0
_UNANSWERED_S = 2.0
"""For how long an answer may be late after its driver has gone: the storage may show it later than the end."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The mailboxes of one root, seen from the callers' side."""

    store: ObjectStore
    catalogues: Catalogues
    observer: Observer

    def ask(
        self,
        stream: StreamName,
        kind: RequestKind,
        *,
        by: str,
        id: RequestId | None = None,
        args: Mapping[str, Any] | None = None,
        deadline: Duration | None = None,
        anyhow: bool = False,
    ) -> Request:
        """Leave a request, or find the one of this id that is answered already.

        Raises StreamNotRunning if there is no live driver, unless it is to be left `anyhow`: for one that might wake.
        """
        mailbox = Mailbox(self.store, stream)
        settled = self._settled(stream, id) if id is not None else None
        status, catalogue = self.observer.look(stream, confirm=settled is None and not anyhow)
        if settled is None and not status.live and not anyhow:
            raise StreamNotRunning(not_running(status), hint=f"`headgate start {stream}` starts it")
        if settled is None and not anyhow:
            self.check_target(catalogue, (args or {}).get(_TARGET))
        if settled is None and kind is RequestKind.SAVEPOINT:
            _check_name_free(catalogue, (args or {}).get("name"))
        return mailbox.ask(
            Request(
                id=settled or id or made_up_id(kind),
                kind=kind,
                generation=status.generation or 0,
                args=dict(args or {}),
                deadline_ms=deadline if deadline is not None else self.patience(catalogue),
                by=by,
                at_ms=now_ms(),
            )
        )

    def check_target(self, catalogue: Catalogue, target: object) -> None:
        """Raise BadInput unless the stream's driver may write a savepoint there: it looks again, by its settings."""
        if isinstance(target, str):
            Places.of(self.store.url, settings_of_newest(catalogue)).check_target(target)

    def is_asked(self, stream: StreamName, id: RequestId) -> bool:
        """Whether it was asked for, and has not failed since."""
        return Mailbox(self.store, stream).request(self.current(stream, id)) is not None

    def answer(self, stream: StreamName, id: RequestId) -> Answer | None:
        """The answer; one that the log gives counts, even if the driver died before it could write it."""
        return Mailbox(self.store, stream).answer(id) or self._told_by_log(stream, id)

    def _told_by_log(self, stream: StreamName, id: RequestId) -> Answer | None:
        request = Mailbox(self.store, stream).request(id)  # None: then only the log can know it
        return _answer_in_log(self.catalogues.read(stream), request.kind if request is not None else None, id)

    def wait(self, stream: StreamName, id: RequestId, timeout_s: float) -> Answer:
        """Wait for the answer. Raises RequestFailed, also when the driver dies meanwhile, or RequestTimedOut."""
        mailbox = Mailbox(self.store, stream)
        begun = time.monotonic()
        looked, dead_since, told = begun - _LOOK_EVERY_S, None, None
        while True:
            answer = mailbox.answer(id)
            now = time.monotonic()
            if answer is None and now - looked >= _LOOK_EVERY_S:
                looked = now
                # What the log tells counts, but the driver's own answer says more: it may be about to come.
                answer, told = told, self._told_by_log(stream, id)
                dead_since = self._dead_since(stream, dead_since, now)
            if answer is not None:
                return _accepted(stream, answer)
            if told is None and dead_since is not None and now - dead_since >= _UNANSWERED_S:
                status = self.observer.status(stream)
                raise RequestFailed(f"request {id} was not answered: {not_running(status)}{self.behind(stream, id)}")
            if now - begun > timeout_s:
                raise RequestTimedOut(
                    f"stream {stream} has not answered request {id} within {timeout_s:g} s{self.behind(stream, id)}",
                    hint="it may still do so: repeat with the same --id to go on waiting",
                )
            time.sleep(_POLL_S)

    def taken_for(self, stream: StreamName, id: RequestId) -> SnapshotRef | None:
        """The snapshot that was completed for a request, whatever has become of the request behind it."""
        slots = [slot.record for slot in self.catalogues.read(stream).slots]
        taken = [each.snapshot for each in slots if isinstance(each, SnapshotCompleted) and each.request == id]
        return taken[-1] if taken else None

    def behind(self, stream: StreamName, id: RequestId) -> str:
        """What a failure is told with, if it came behind a snapshot that is complete: that, and its place."""
        taken = self.taken_for(stream, id)
        return f"; {taken.told}" if taken is not None else ""

    def patience(self, catalogue: Catalogue) -> Duration:
        """How long a request that takes a snapshot may take."""
        settings = settings_of_newest(catalogue)
        return Duration(settings["execution.checkpointing.timeout"] + settings["heartbeat.timeout"])

    def _dead_since(self, stream: StreamName, dead_since: float | None, now: float) -> float | None:
        if self.observer.status(stream).live:
            return None
        return dead_since if dead_since is not None else now

    def current(self, stream: StreamName, id: RequestId) -> RequestId:
        """The ordinal of `id` that counts: those that failed are passed over."""
        while (answer := self.answer(stream, id)) is not None and answer.outcome is Outcome.FAILED:
            id = id.next_ordinal()
        return id

    def _settled(self, stream: StreamName, id: RequestId) -> RequestId | None:
        """The ordinal of `id` that was carried out already, or None."""
        id = self.current(stream, id)
        return id if self.answer(stream, id) is not None else None


def made_up_id(kind: RequestKind) -> RequestId:
    """An id for a request that nobody will repeat."""
    return RequestId(f"{kind.value}-{_now_text()}-{uuid.uuid4().hex[:6]}")


def savepoint_name(wanted: bool | str) -> SavepointName | None:
    """A savepoint's name: what a person gave, one made up if he only wants it, none if he does not.

    Raises InvalidName for mere digits: those name a snapshot by its id.
    """
    if not isinstance(wanted, str):
        return SavepointName(f"sp-{_now_text()}-{uuid.uuid4().hex[:4]}") if wanted else None
    if wanted.isdecimal():
        raise InvalidName(
            f"{wanted!r} is no name for a savepoint", hint="digits alone are a snapshot's id: add a letter"
        )
    return SavepointName(wanted)


def in_directory(target: str | None) -> dict[str, object]:
    """What a request that takes a savepoint says of where to."""
    return {} if target is None else {_TARGET: target}


def _now_text() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _check_name_free(catalogue: Catalogue, name: object) -> None:
    if isinstance(name, str) and (taken := catalogue.find(SavepointName(name))) is not None:
        raise Conflict(
            f"stream {catalogue.stream} has a savepoint {name} already (snapshot {taken.id})",
            hint="choose another name, or leave it out",
        )


def _answer_in_log(catalogue: Catalogue, kind: RequestKind | None, id: RequestId) -> Answer | None:
    """What the log says about a request: its slot is the deed itself. A stop is done when *stopped* is written."""
    told = [
        slot.record
        for slot in catalogue.slots
        if isinstance(slot.record, (SnapshotCompleted, Stopped)) and slot.record.request == id
    ]
    ends = kind in (RequestKind.STOP, RequestKind.CANCEL)
    if not told or (ends and not isinstance(told[-1], Stopped)):
        return None
    last = told[-1]
    taken = last.snapshot if isinstance(last, Stopped) else last.snapshot.id
    ref = next((ref for ref in catalogue.completed if ref.id == taken), None)
    return Answer(
        id=id,
        outcome=Outcome.DONE,
        result={"snapshot": int(ref.id), "name": ref.name, "folder": ref.where} if ref is not None else {},
        why="told by the log",
        generation=last.generation,
        at_ms=0,
    )


def _accepted(stream: StreamName, answer: Answer) -> Answer:
    if answer.outcome is Outcome.FAILED:
        raise RequestFailed(f"stream {stream} could not carry out request {answer.id}: {answer.why}")
    return answer


def dead_note(status: StreamStatus) -> str:
    """What to say to somebody who wants a stream stopped that has no driver any more."""
    return f"{not_running(status)}; it stays stopped until somebody starts it"
