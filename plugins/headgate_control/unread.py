"""Ends the driver of a stream whose log cannot be read: by its mailbox and, on this host, by its process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from headgate_contract.durations import Duration
from headgate_contract.errors import CorruptObject, RequestFailed, RequestTimedOut, StreamNotRunning
from headgate_contract.ids import RequestId, StreamName
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore
from headgate_control.journal import now_ms
from headgate_control.outcomes import Asked
from headgate_control.processes import kill_group, wait_gone
from headgate_control.requests import made_up_id
from headgate_control.signs import Sign, newest_sign

_POLL_S = 0.15
_ENDING_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A stream of which nothing but heartbeats and the mailbox can be read."""

    store: ObjectStore
    stream: StreamName
    fault: CorruptObject
    """Why its log cannot be read."""

    def end(
        self, kind: RequestKind, id: RequestId | None, args: Mapping[str, object], by: str, timeout_s: float | None
    ) -> Asked:
        """Ask the driver that heartbeats tell of to end, and wait for that. One that is cancelled here is killed."""
        sign = newest_sign(self.store, self.stream)
        if sign is None or sign.down:
            return self._nobody(sign, wants=bool(args.get("savepoint")))
        request = Mailbox(self.store, self.stream).ask(
            Request(
                id=id or made_up_id(kind),
                kind=kind,
                generation=sign.seen.generation,
                args=dict(args),
                deadline_ms=_patience(),
                by=by,
                at_ms=now_ms(),
            )
        )
        answer = self._answer(request, timeout_s if timeout_s is not None else _patience().seconds)
        if answer is not None and answer.outcome is Outcome.FAILED and kind is RequestKind.STOP:
            raise RequestFailed(f"stream {self.stream} could not carry out request {request.id}: {answer.why}")
        process = sign.seen.heartbeat.process if sign.seen.heartbeat is not None else None
        closed = answer is not None and process is not None and wait_gone(process, _ENDING_S)
        if process is not None and not closed and (answer is not None or kind is RequestKind.CANCEL):
            kill_group(process)
            wait_gone(process, _ENDING_S)
        sign = newest_sign(self.store, self.stream) or sign
        if answer is None and not sign.down:
            raise RequestTimedOut(
                f"stream {self.stream} has not answered request {request.id}: {sign.told}; {self.fault.what}",
                hint="end its process there" if kind is RequestKind.CANCEL else f"`headgate cancel {self.stream}`",
            )
        return Asked(stream=self.stream, request=request, answer=answer, note=f"{sign.told}; {self._repair}")

    def _answer(self, request: Request, timeout_s: float) -> Answer | None:
        """The answer; None if none came while the driver lived and the time lasted."""
        mailbox, deadline = Mailbox(self.store, self.stream), time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = mailbox.answer(request.id)
            if answer is not None:
                return answer
            sign = newest_sign(self.store, self.stream)
            if sign is None or sign.down:
                return mailbox.answer(request.id)
            time.sleep(_POLL_S)
        return None

    def _nobody(self, sign: Sign | None, *, wants: bool) -> Asked:
        heard = sign.told if sign is not None else "no driver has given a sign of life"
        if wants:
            raise StreamNotRunning(f"no savepoint was taken: {heard}; {self.fault.what}", hint=self._repair)
        return Asked(stream=self.stream, request=None, note=f"nothing to stop: {heard}; {self._repair}")

    @property
    def _repair(self) -> str:
        return f"its log cannot be read ({self.fault.what}): `headgate repair {self.stream}` tells a way out"


def _patience() -> Duration:
    settings = Settings({})
    return Duration(settings["execution.checkpointing.timeout"] + settings["heartbeat.timeout"])
