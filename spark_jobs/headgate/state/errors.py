"""What can go wrong with keyed state, each with a name.

StateError  (headgate_contract.errors)
├── MissingStateFile        a file of the exact parent version is absent or has the wrong length
├── DamagedStateFile        a file is there but is not what its version says
├── StateFormatTooNew       written by a newer release
├── StateMigrationError     the stored schema and the declared one differ
├── StateSchemaMismatch     a batch does not have the columns that its state was declared with
├── ForeignKeyGroup         a row or a version belongs to another subtask
├── DuplicateKey            one batch writes the same key twice
├── RestoreGap              the pieces of a snapshot do not cover a subtask's key groups exactly once
├── SessionClosed           a session is used after seal or discard
├── StateWriteFailed        the local disk refused a file
├── UnknownState            no state of that name was declared
└── UnknownBackend          no backend of that name exists
"""

from __future__ import annotations

from headgate_contract.errors import StateError

__all__ = [
    "DamagedStateFile",
    "DuplicateKey",
    "ForeignKeyGroup",
    "MissingStateFile",
    "RestoreGap",
    "SessionClosed",
    "StateError",
    "StateFormatTooNew",
    "StateMigrationError",
    "StateSchemaMismatch",
    "StateWriteFailed",
    "UnknownBackend",
    "UnknownState",
]


class MissingStateFile(StateError):
    """A file of the exact parent version is absent or has the wrong length: the step must not go on without it."""


class DamagedStateFile(StateError):
    """A file has the right name and length, but not the content that its version says."""


class StateFormatTooNew(StateError):
    """A file or a version was written by a release that is newer than this one."""


class StateMigrationError(StateError):
    """The schema in the snapshot and the declared one differ in a way that cannot be read."""


class StateSchemaMismatch(StateError):
    """A batch does not have the columns that its state was declared with."""


class ForeignKeyGroup(StateError):
    """A row, a version or a request lies outside the key groups that this subtask owns."""


class DuplicateKey(StateError):
    """One batch writes the same key and namespace twice, so that no row of the two can be said to win."""


class RestoreGap(StateError):
    """The pieces of a snapshot do not cover the key groups of a subtask exactly once."""


class SessionClosed(StateError):
    """A session, or a table of it, is used after it was sealed or discarded."""


class StateWriteFailed(StateError):
    """The local disk refused a state file (full, read-only, gone)."""


class UnknownState(StateError):
    """No state of that name was declared."""


class UnknownBackend(StateError):
    """No state backend of that name exists."""
