"""Versioned JSON: every stored object names its kind and version; a newer version is refused by name.

An object is one line of UTF-8: `{"body":...,"headgate":"<kind>","version":<n>}`, keys sorted. docs/formats/ describes
every kind's body.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

from headgate_contract.codec import from_plain, to_plain
from headgate_contract.errors import CorruptObject, NewerVersion

VERSIONS = {
    "slot": 2,
    "decision": 2,
    "request": 1,
    "answer": 1,
    "heartbeat": 3,
    "event": 2,
    "snapshot": 4,
    "stream": 1,
    "manifest": 1,
    "segment": 1,
}
"""The newest version of each kind that this release reads and the one that it writes."""

T = TypeVar("T")


def encode(kind: str, body: object) -> bytes:
    """The canonical bytes of `body`: sorted keys, one line, a newline at the end."""
    envelope = {"headgate": kind, "version": VERSIONS[kind], "body": to_plain(body)}
    text = json.dumps(envelope, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A lone surrogate (a file name that is no UTF-8) is written as its JSON escape, and comes back as it was.
    return f"{text}\n".encode("utf-8", "backslashreplace")


def decode(kind: str, data: bytes, body: type[T] | Any, where: str) -> Any:
    """Read a `body` of `kind` back from `data`; `where` names the object in errors."""
    try:
        envelope = json.loads(data.decode(), parse_constant=_refuse_constant)
        return _open(kind, envelope, body, where)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number too long to be one, nested without end
        raise CorruptObject(f"{where} is not {_a(kind)} file: {error}") from None


def _open(kind: str, envelope: object, body: type[T] | Any, where: str) -> Any:
    if not isinstance(envelope, dict) or not {"headgate", "version"} <= set(envelope):
        raise CorruptObject(f"{where} is not {_a(kind)} file: the envelope is missing")
    if envelope["headgate"] != kind:
        raise CorruptObject(f"{where} is {_a(envelope['headgate'])} file, not {_a(kind)} file")
    version = envelope["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptObject(f"{where} has the version {version!r}")
    if version > VERSIONS[kind]:
        raise NewerVersion(
            f"{where} is {_a(kind)} file of version {version}; this Headgate reads up to {VERSIONS[kind]}",
            hint="upgrade Headgate on this side",
        )
    if set(envelope) != {"headgate", "version", "body"}:
        raise CorruptObject(f"{where} is not {_a(kind)} file: the envelope is not that of version {version}")
    return from_plain(body, envelope["body"], where)


def _a(kind: object) -> str:
    return f"{'an' if str(kind)[:1] in 'aeiou' else 'a'} {kind}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
