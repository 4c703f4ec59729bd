"""The error tree: each error says what, which, and what to do next, and knows the CLI's exit code.

HeadgateError (1)
├── BadInput (2)
│   ├── InvalidName
│   ├── BadConfiguration
│   │   └── UnknownKey
│   └── JobInvalid
├── NotFound (3)
│   ├── StreamUnknown
│   └── SnapshotUnknown
├── Conflict (4)
│   ├── StreamRunning
│   ├── StreamNotRunning
│   ├── SlotTaken
│   └── Fenced
├── RestoreRefused (5)
├── StorageError (6)
│   ├── ObjectMissing
│   ├── StorageUnreachable
│   │   └── NotARoot
│   ├── RootLost (11)
│   └── CorruptObject
│       ├── NewerVersion
│       ├── OlderVersion
│       ├── LogDamaged
│       └── SnapshotDamaged
├── RequestFailed (7)
│   └── RequestTimedOut
├── LaunchFailed (8)
└── StreamFailed (9)
    ├── BatchFailed
    │   └── RecordFailed
    ├── SuppressRestarts
    ├── SinkFailed
    │   └── SinkDamaged
    ├── StateError
    └── CheckpointFailed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class HeadgateError(Exception):
    """Everything that Headgate raises on purpose. `str()` is fit to be shown to a person as it is."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.hint))


def _rebuild(cls: type[HeadgateError], what: str, hint: str) -> HeadgateError:
    error = cls.__new__(cls)
    HeadgateError.__init__(error, what, hint=hint)
    return error


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it came from, what that came from, and so on."""
    seen: set[int] = set()
    next_one: BaseException | None = error
    while next_one is not None and id(next_one) not in seen:
        seen.add(id(next_one))
        yield next_one
        next_one = next_one.__cause__ or (None if next_one.__suppress_context__ else next_one.__context__)


class BadInput(HeadgateError):
    """A person typed something that cannot be meant."""

    exit_code = 2


class InvalidName(BadInput):
    """A stream, vertex, savepoint or request name that storage paths cannot carry."""


class BadConfiguration(BadInput):
    """A setting's value is not one of those allowed."""


class UnknownKey(BadConfiguration):
    """A setting that does not exist."""


class JobInvalid(BadInput):
    """A job file that does not import, or a graph that cannot run."""


class NotFound(HeadgateError):
    """What was named does not exist."""

    exit_code = 3


class StreamUnknown(NotFound):
    """No stream of this name was deployed on this root."""


class SnapshotUnknown(NotFound):
    """No retained snapshot answers to this name."""


class Conflict(HeadgateError):
    """The stream is not in the state that the request needs."""

    exit_code = 4


class StreamRunning(Conflict):
    """Start of a stream that runs."""


class StreamNotRunning(Conflict):
    """A request to a stream that has no live driver."""


class SlotTaken(Conflict):
    """Somebody else wrote the slot that this writer wanted; the log says who."""


class Fenced(Conflict):
    """A newer generation has started: this driver may complete and commit nothing more."""


class RestoreRefused(HeadgateError):
    """The restore decision is Refuse; the message names the alternatives."""

    exit_code = 5


class StorageError(HeadgateError):
    """The storage root answered with something that cannot be used."""

    exit_code = 6


class ObjectMissing(StorageError):
    """An object that was named is not there."""


class StorageUnreachable(StorageError):
    """The root cannot be read or written."""


class NotARoot(StorageUnreachable):
    """A place that no deploy has made a storage root of."""


class RootLost(StorageError):
    """What was worked on is gone, or is not what it was: nothing more may be written there."""

    exit_code = 11


class CorruptObject(StorageError):
    """An object's bytes are not what its kind must look like."""


class NewerVersion(CorruptObject):
    """An object was written by a newer Headgate than this one."""


class OlderVersion(CorruptObject):
    """An object was written by an older Headgate, in a format that this one does not read."""


class LogDamaged(CorruptObject):
    """The slot log has a hole or an unreadable slot; nothing is guessed."""


class SnapshotDamaged(CorruptObject):
    """A snapshot's metadata or one of its files is missing, short, or has another checksum."""


class RequestFailed(HeadgateError):
    """The driver carried out the request and it failed."""

    exit_code = 7


class RequestTimedOut(RequestFailed):
    """The driver did not answer before the caller stopped waiting."""


class LaunchFailed(HeadgateError):
    """A driver did not come up; the message holds the root cause and where its log is."""

    exit_code = 8


class StreamFailed(HeadgateError):
    """The stream cannot go on; the restart strategy decides what follows."""

    exit_code = 9


class BatchFailed(StreamFailed):
    """A micro-batch failed."""


class RecordFailed(BatchFailed):
    """A micro-batch failed of what is in its records: it will again, until the records or the job are changed."""


class SuppressRestarts(StreamFailed):
    """No restart mends this: raised by an author's code, the stream fails for good, whatever its restart strategy."""


class SinkFailed(StreamFailed):
    """A sink could not stage or commit."""


class SinkDamaged(SinkFailed):
    """What a sink has published, or its own record of that, is damaged or gone: no restart mends it."""


class StateError(StreamFailed):
    """Working state could not be opened, read or written."""


class CheckpointFailed(StreamFailed):
    """More checkpoints failed than are tolerated, or a required one did."""
