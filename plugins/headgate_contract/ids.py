"""Typed ids: what may name a stream, a vertex, a generation, a snapshot or a request, checked where it is made."""

from __future__ import annotations

import re
from typing import ClassVar, Self

from headgate_contract.errors import InvalidName


class _Name(str):
    """A string that is checked once and can stand in a storage path as it is."""

    __slots__ = ()
    noun: ClassVar[str] = "name"
    pattern: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
    rule: ClassVar[str] = "use 1 to 100 letters, digits, '_', '-' and single '.', starting with a letter or digit"

    def __new__(cls, value: str) -> Self:
        if not isinstance(value, str) or not cls.pattern.fullmatch(value) or ".." in value:
            raise InvalidName(f"{value!r} is not a valid {cls.noun}", hint=cls.rule)
        return super().__new__(cls, value)


class StreamName(_Name):
    """A job deployed under a name."""

    __slots__ = ()
    noun = "stream name"


class VertexUid(_Name):
    """What state is found again by; stable over the job's versions, unlike a vertex's display name."""

    __slots__ = ()
    noun = "vertex uid"


class SavepointName(_Name):
    """What a person calls a savepoint."""

    __slots__ = ()
    noun = "savepoint name"


class RequestId(_Name):
    """A request's idempotency key. A retry after a terminal failure carries the next ordinal: `ID~2`, `ID~3`."""

    __slots__ = ()
    noun = "request id"
    pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}(~[1-9][0-9]{0,8})?")
    rule = "use 1 to 200 letters, digits, '_', '-' and single '.', starting with a letter or digit; `~2` counts retries"

    def next_ordinal(self) -> RequestId:
        """The id of the next try."""
        base, _, ordinal = self.partition("~")
        return RequestId(f"{base}~{int(ordinal or 1) + 1}")


class _Number(int):
    """A counting number from one on."""

    noun: ClassVar[str] = "number"

    def __new__(cls, value: int) -> Self:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidName(f"{value!r} is not a valid {cls.noun}", hint="it is a whole number from 1 on")
        return super().__new__(cls, value)

    def next(self) -> Self:
        return type(self)(self + 1)


class Generation(_Number):
    """One life of a stream's driver."""

    noun = "generation"


class CheckpointId(_Number):
    """Unique among the COMPLETED snapshots of a stream's whole life."""

    noun = "checkpoint id"


class SlotNumber(_Number):
    """A place in a log; numbered from 1 without gaps."""

    noun = "slot number"
