"""The mailbox: requests that callers leave for a driver, and its answers; a request's id is its idempotency key."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate_contract import wire
from headgate_contract.credentials import masked
from headgate_contract.errors import CorruptObject, ObjectMissing
from headgate_contract.ids import RequestId, StreamName
from headgate_contract.paths import StreamPaths
from headgate_contract.store import ObjectStore


class RequestKind(enum.Enum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    STOP = "stop"
    CANCEL = "cancel"


class Outcome(enum.Enum):
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is wanted. `generation` is whom it was meant for: a later one answers it as failed and does nothing.

    The nonce makes its bytes unique: of callers who use one id at once, each knows whether the request is its own.
    """

    id: RequestId
    kind: RequestKind
    generation: int
    args: Mapping[str, Any] = field(default_factory=dict)
    deadline_ms: int
    """How long after first seeing it the driver may still take it up."""
    by: str
    at_ms: int
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a request; written once."""

    id: RequestId
    outcome: Outcome
    result: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    generation: int
    late: bool = False
    at_ms: int


class Mailbox:
    """The mailbox of one stream."""

    def __init__(self, store: ObjectStore, stream: StreamName) -> None:
        self._store = store
        self._paths = StreamPaths(stream)

    def ask(self, request: Request) -> Request:
        """Leave `request`, or find the one of its id: what is returned is the request that counts.

        If that one has failed, the request takes the next ordinal of its id and is tried anew.
        """
        while True:
            is_ours = self._create(self._paths.request(request.id), "request", request)
            answer = self.answer(request.id)
            if answer is None or answer.outcome is Outcome.DONE:
                return request if is_ours else self._read(request.id)
            request = replace(request, id=request.id.next_ordinal())

    def request(self, id: RequestId) -> Request | None:
        """What was asked for under this id, or None if nobody did."""
        try:
            return self._read(id)
        except ObjectMissing:
            return None

    def answer(self, request: RequestId) -> Answer | None:
        """The answer to `request`, or None while there is none."""
        path = self._paths.answer(request)
        try:
            data = self._store.read(path)
        except ObjectMissing:
            return None
        answer: Answer = wire.decode("answer", data, Answer, path, path)
        if answer.id != request:
            raise CorruptObject(f"{path} holds the answer to {answer.id}")
        return answer

    def open_requests(self, known: frozenset[str] = frozenset()) -> list[Request | CorruptRequest]:
        """The requests without an answer whose names are not in `known`, oldest first.

        A file that cannot be read as a request is given as CorruptRequest: it blocks none of the others.
        """
        found = self._store.list(self._paths.requests)
        answered = {_name(self._paths.answers, info.path) for info in self._store.list(self._paths.answers)}
        waiting = [
            (info.modified, name, info.path)
            for info in found
            if (name := _name(self._paths.requests, info.path)) not in answered and name not in known
        ]
        opened = [self._open(name, path) for _, name, path in sorted(waiting)]
        return [request for request in opened if request is not None]

    def reply(self, answer: Answer) -> bool:
        """Record `answer`; False if the request has another one already, which then stands."""
        return self._create(self._paths.answer(answer.id), "answer", replace(answer, why=masked(answer.why)))

    def _create(self, path: str, kind: str, body: Request | Answer) -> bool:
        return self._store.create(path, wire.encode(kind, body, path))

    def _read(self, request: RequestId) -> Request:
        path = self._paths.request(request)
        found: Request = wire.decode("request", self._store.read(path), Request, path, path)
        return found

    def _open(self, name: str, path: str) -> Request | CorruptRequest | None:
        try:
            request: Request = wire.decode("request", self._store.read(path), Request, path, path)
        except ObjectMissing:
            return None  # deleted since it was listed
        except CorruptObject as error:
            return CorruptRequest(name, str(error))
        if request.id != name:
            return CorruptRequest(name, f"{path} holds the request {request.id}")
        return request


def _name(folder: str, path: str) -> str:
    """What the file at `path` is called among the requests or answers; only a direct child can be a request's id."""
    return path.removeprefix(f"{folder}/").removesuffix(".json")


@dataclass(frozen=True, slots=True)
class CorruptRequest:
    """A file among the requests that is none; the driver says so once in history and leaves it."""

    name: str
    why: str
