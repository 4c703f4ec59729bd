"""The file sink: each checkpoint's rows appear as whole files, exactly once, where any reader of the folder looks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from headgate.sink.base import Guarantee, Sink, SinkCommitter, SinkTask, SinkWriter
from headgate.sink.files_layout import is_shown
from headgate_contract.credentials import carries_credentials, masked
from headgate_contract.errors import BadConfiguration, HeadgateError
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.restore import Rollback
from headgate_contract.store import ObjectStore, open_store

FORMATS = ("parquet", "json", "csv")
COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
THREADS = 8
"""How many files the driver syncs or moves at a time."""


_STORES: dict[tuple[str, str, int], ObjectStore] = {}
"""By target, options and process: a connection does not survive a fork."""


@dataclass(frozen=True)
class FilesSink(Sink):
    """See `files`. Pickled, it means the folder that the pickling process means, wherever it is unpickled."""

    path: str
    format: str = "parquet"
    compression: str = "snappy"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    kind: ClassVar[str] = "files"

    def __post_init__(self) -> None:
        if carries_credentials(self.path):
            raise BadConfiguration(
                f"a files sink's URL carries credentials, {masked(self.path)!r}: it is kept and shown in clear",
                hint="give them in the environment, or as storage_options",
            )
        _check_choice("format", self.format, FORMATS)
        _check_choice("compression", self.compression, COMPRESSIONS)
        if urlsplit(self.path).scheme not in ("s3", "s3a"):
            open_store(self.path, self.storage_options)  # refuses what it does not know; opens nothing yet

    def __reduce__(self) -> tuple[object, ...]:
        return (FilesSink, (self._resolved(), self.format, self.compression, dict(self.storage_options)))

    @property
    def rollback(self) -> Rollback:
        return Rollback.RETRACT

    @property
    def guarantee(self) -> Guarantee:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "path": self.path,
            "format": self.format,
            "compression": self.compression if self.format == "parquet" else "none",
            "storage_options": sorted(self.storage_options),
        }

    def check(self) -> None:
        with _said_of_the_target():
            self._store().make()
            self._store().check_writable()

    def writer(self, task: SinkTask) -> SinkWriter:
        from headgate.sink.files_writer import FilesWriter

        return FilesWriter(self._store(), task, self.format, self.compression)

    def committer(self, stream: StreamName, sink: VertexUid, generation: Generation, history: str) -> SinkCommitter:
        from headgate.sink.files_committer import FilesCommitter

        return FilesCommitter(
            self._store(), stream, sink, generation, history, threads=THREADS, compression=self.compression
        )

    def _store(self) -> ObjectStore:
        """A process opens a target once: to connect to S3 takes longer than to write a small batch."""
        options = json.dumps(dict(self.storage_options), sort_keys=True, default=repr)
        key = (self._resolved(), options, os.getpid())
        if key not in _STORES:
            _STORES[key] = open_store(self._resolved(), self.storage_options, shown=is_shown)
        return _STORES[key]

    def _resolved(self) -> str:
        return self.path if "://" in self.path else str(Path(self.path).expanduser().absolute())


@contextmanager
def _said_of_the_target() -> Iterator[None]:
    """A store speaks of its root; a sink's is the folder that it writes into, and the storage root is well."""
    try:
        yield
    except HeadgateError as error:
        what = error.what.replace("the root ", "the sink's target ", 1)
        raise type(error)(what, hint=error.hint.replace("another root", "another folder for the sink")) from error


def files(
    path: str | Path,
    format: Literal["parquet", "json", "csv"] = "parquet",
    storage_options: Mapping[str, Any] | None = None,
    *,
    compression: Literal["snappy", "zstd", "lz4", "gzip", "none"] = "snappy",
) -> FilesSink:
    """Write files into the folder `path`: a local path, `file://` or `s3://`. Exactly-once.

    A relative path is meant from where the driver runs. The rows of a checkpoint appear, all of them, once it has
    completed: any reader of `path/*.parquet` (`*.json`: one object per line; `*.csv`: a header in each file) sees just
    those. A restore to an older snapshot takes back what was published after it. `compression` is for parquet.
    `storage_options` go to fsspec (endpoint, credentials).
    """
    return FilesSink(str(path), format, compression, dict(storage_options or {}))


def _check_choice(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadConfiguration(f"a files sink has no {what} {value!r}", hint=f"choose one of {', '.join(allowed)}")
