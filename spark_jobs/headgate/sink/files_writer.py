"""The task's half of the file sink: one attempt's rows go to one staged file.

On a local target it is written in place, into a folder that the committer has made: no task makes one, since it would
make it anew below a mount that dropped. Otherwise to a local temporary file first, which is uploaded at the end.
Nothing is synced here: `prepare` does that once, before the checkpoint is acked, for what is still needed then.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from headgate.sink.base import Handle, SinkTask, SinkWriter
from headgate.sink.files_formats import FORMATS, DataFile
from headgate.sink.files_layout import SUFFIXES, SinkFile, SinkLayout, handle_of
from headgate_contract.errors import HeadgateError, RecordFailed, SinkFailed, StreamFailed
from headgate_contract.modes import touch_private
from headgate_contract.store import ObjectStore


class FilesWriter(SinkWriter):
    """Writes below `store`, the sink's target."""

    def __init__(self, store: ObjectStore, task: SinkTask, format: str, compression: str) -> None:
        self._store = store
        self._task = task
        self._format = format
        self._compression = compression
        self._unique = uuid.uuid4().hex[:12]
        self._staged = SinkLayout(task.stream, task.sink).stage(task, self._unique)
        self._path = self._local()
        self._file: DataFile | None = None
        self._begun = False
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows == 0:
            return
        with self._explained():
            if self._file is None:
                self._begun = True
                if self._store.local is not None:
                    touch_private(self._path, self._store.local)
                else:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = FORMATS[self._format](self._path, rows.schema, self._compression)
            self._file.write(rows)
        self._rows += rows.num_rows

    def finish(self) -> tuple[Handle, ...]:
        if self._file is None:
            return ()
        with self._explained():
            self._file.close()
            length = self._path.stat().st_size
            if self._store.local is None:
                self._store.upload(self._path, self._staged)
                self._path.unlink()
        file = SinkFile(
            staged=self._staged,
            generation=self._task.generation,
            subtask=self._task.subtask,
            unique=self._unique,
            suffix=SUFFIXES[self._format],
            rows=self._rows,
            bytes=length,
        )
        return (handle_of(file, self._store.url),)

    def abort(self) -> None:
        if not self._begun:
            return
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):  # it could not be ended, which may be why it goes
                self._file.close()
        if self._store.local is None:
            self._path.unlink(missing_ok=True)
        self._store.delete(self._staged)

    def _local(self) -> Path:
        """Where the rows are written to, on this machine."""
        if self._store.local is not None:
            return self._store.local / self._staged
        spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]  # scratch of this life: the next one deletes it
        return Path(spark or tempfile.gettempdir()) / f"headgate-{self._staged.rsplit('/', 1)[-1]}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors by name: of which sink, and where. What was written so far is dropped."""
        where = f"sink {self._task.sink} of stream {self._task.stream} cannot stage {self._staged} on {self._store.url}"
        try:
            yield
        except (HeadgateError, OSError, pa.ArrowException) as error:
            with suppress(HeadgateError, OSError):  # what is left is deleted at the start of the next life
                self.abort()
            raise self._failed(where, error) from error

    def _failed(self, where: str, error: Exception) -> StreamFailed:
        if isinstance(error, RecordFailed):
            return RecordFailed(f"sink {self._task.sink}: {error.what}", hint=error.hint)
        if isinstance(error, HeadgateError):
            return SinkFailed(f"{where}: {error.what}", hint=error.hint)
        if isinstance(error, FileNotFoundError):
            return SinkFailed(
                f"{where}: its folder is not there",
                hint="is the target's storage mounted, on the machine of the task as well? nothing is made anew there",
            )
        if isinstance(error, OSError):
            return SinkFailed(
                f"{where}: {error.strerror or error}",
                hint="is there space, and may this user write there, on the machine of the task?",
            )
        return SinkFailed(
            f"{where} as {self._format}: {error}", hint="all rows of a sink have one schema, of types it can hold"
        )
