"""Versioned JSON: every stored object names its kind, version and place, and ends in a checksum of its own bytes.

An object is one line of UTF-8: `{"at":"<path>","body":...,"headgate":"<kind>","version":<n>,"sha256":"<of all bytes
before this field>"}`, keys sorted but for the last. docs/formats/ describes every kind's body.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, TypeVar

from headgate_contract.codec import from_plain, to_plain
from headgate_contract.errors import CorruptObject, NewerVersion, OlderVersion

VERSIONS = {
    "slot": 5,
    "decision": 4,
    "request": 2,
    "answer": 2,
    "heartbeat": 7,
    "event": 4,
    "snapshot": 6,
    "stream": 2,
    "manifest": 2,
    "segment": 2,
    "root": 1,
    "summary": 1,
}
"""The one version of each kind that this release reads and writes."""

ENVELOPE = frozenset({"at", "body", "headgate", "version", "sha256"})

_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\n')
_SEAL_LENGTH = len(',"sha256":""}\n') + 64
_FLIPS_SOUGHT_IN = 1 << 14
"""Bytes: the bits of longer objects are too many to be tried one by one."""
_PUT_BACK = "put the file's own bytes back"

T = TypeVar("T")


def encode(kind: str, body: object, at: str = "") -> bytes:
    """The canonical bytes of `body`: sorted keys, one line, a checksum and a newline at the end.

    `at` is the path that they are for, below their store's root: read from another one they are refused. Empty: the
    object may be moved (a savepoint's metadata; its slot pins it by its checksum).
    """
    return _sealed({"at": at, "body": to_plain(body), "headgate": kind, "version": VERSIONS[kind]})


def decode(kind: str, data: bytes, body: type[T] | Any, where: str, at: str | None = None) -> Any:
    """Read a `body` of `kind` back from `data`; `where` names the object in errors.

    `at` is the path that it was read from, if it has to be the one that it was written for.
    """
    seal = _SEAL.fullmatch(data[-_SEAL_LENGTH:])
    if seal and seal[1].decode() != sha256(data[:-_SEAL_LENGTH]):
        raise CorruptObject(f"{where} is damaged: its checksum is that of other bytes", hint=_PUT_BACK)
    try:
        envelope = json.loads(data.decode(), parse_constant=_refuse_constant)
        return _open(kind, envelope, None if seal else data, body, where, at)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number too long to be one, nested without end
        raise CorruptObject(f"{where} is not {_a(kind)} file: {error}", hint=_PUT_BACK) from None


def canonical(data: bytes) -> bytes | None:
    """The bytes that `data` was before an editor laid it out anew, proven by its checksum; None: it is not those."""
    try:
        envelope = json.loads(data.decode(), parse_constant=_refuse_constant)
        sealed = _sealed({key: value for key, value in envelope.items() if key != "sha256"})
    except (ValueError, RecursionError, TypeError, AttributeError):
        return None
    return sealed if sealed.endswith(f'"{envelope.get("sha256")}"}}\n'.encode("utf-8", "replace")) else None


def mended(data: bytes) -> bytes | None:
    """The bytes that `data` was before an editor laid it out anew, something was appended, or one bit flipped.

    Each is proven by the checksum; None: it was none of these.
    """
    for end in (match.end() for match in re.finditer(_SEAL, data)):
        if _is_sealed(data[:end]):
            return data[:end]
    found = canonical(data)
    return found if found is not None or len(data) > _FLIPS_SOUGHT_IN else _unflipped(data)


def _unflipped(data: bytes) -> bytes | None:
    line, seal = data[:-_SEAL_LENGTH], data[-_SEAL_LENGTH:]
    true_seal = _seal_of(line)
    if sum((a ^ b).bit_count() for a, b in zip(seal, true_seal, strict=False)) == 1:
        return line + true_seal
    match = _SEAL.fullmatch(seal)
    if match is None:
        return None
    wanted = bytes.fromhex(match[1].decode())
    tried = bytearray(line)
    for at in range(len(tried)):
        before = hashlib.sha256(tried[:at])
        for bit in range(8):
            tried[at] ^= 1 << bit
            digest = before.copy()
            digest.update(tried[at:])
            if digest.digest() == wanted:
                return bytes(tried) + seal
            tried[at] ^= 1 << bit
    return None


def _is_sealed(data: bytes) -> bool:
    return data.endswith(_seal_of(data[:-_SEAL_LENGTH]))


def _seal_of(line: bytes) -> bytes:
    return f',"sha256":"{sha256(line)}"}}\n'.encode()


def _sealed(envelope: dict[str, Any]) -> bytes:
    text = json.dumps(envelope, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A lone surrogate (a file name that is no UTF-8) is written as its JSON escape, and comes back as it was.
    line = text.removesuffix("}").encode("utf-8", "backslashreplace")
    return line + _seal_of(line)


def _open(kind: str, envelope: object, unsealed: bytes | None, body: type[T] | Any, where: str, at: str | None) -> Any:
    """`unsealed`: the bytes, if they do not end in a checksum."""
    if not isinstance(envelope, dict) or not {"headgate", "version"} <= set(envelope):
        raise CorruptObject(f"{where} is not {_a(kind)} file: the envelope is missing", hint=_PUT_BACK)
    if envelope["headgate"] != kind:
        raise CorruptObject(f"{where} is {_a(envelope['headgate'])} file, not {_a(kind)} file", hint=_PUT_BACK)
    _check_version(kind, envelope["version"], where)
    if unsealed is not None:
        raise _unsealed(unsealed, where)
    if set(envelope) != ENVELOPE:
        version = envelope["version"]
        raise CorruptObject(f"{where} is not {_a(kind)} file: the envelope is not that of version {version}")
    if at is not None and envelope["at"] != at:
        raise CorruptObject(
            f"{where} is misplaced: it was written as {envelope['at']!r}", hint=f"move it back there; {_PUT_BACK}"
        )
    return from_plain(body, envelope["body"], where)


def _check_version(kind: str, version: object, where: str) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptObject(f"{where} has the version {version!r}", hint=_PUT_BACK)
    said = f"{where} is {_a(kind)} file of version {version}; this Headgate reads version {VERSIONS[kind]}"
    if version > VERSIONS[kind]:
        raise NewerVersion(said, hint="upgrade Headgate on this side")
    if version < VERSIONS[kind]:
        raise OlderVersion(said, hint="an older Headgate wrote it: go on with that release, or begin with a new root")


def _unsealed(data: bytes, where: str) -> CorruptObject:
    if canonical(data) is None:
        return CorruptObject(f"{where} is damaged: it does not end in its checksum", hint=_PUT_BACK)
    return CorruptObject(
        f"{where} was laid out anew, by an editor or a formatter: its content is whole, its checksum is of every byte",
        hint="make it one line again, as it was (`jq` and editors re-indent and add or drop the last line's end)",
    )


def _a(kind: object) -> str:
    return f"{'an' if str(kind)[:1] in 'aeiou' else 'a'} {kind}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
