"""Spark's file source: every file once, whatever its name is; its position is the list of files handed over."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headgate.source.files import FilesSource
from headgate.source.place import shown
from headgate.source.positions import FileListBook
from headgate.source.unread import UnreadFiles
from headgate.spark.readers import Json, Reader, write
from headgate_contract.errors import JobInvalid, StreamFailed

_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""What makes a pattern of a name, for Spark."""
_COLON = re.compile(r":[^/]*$")
"""A name in which Hadoop's local file system, which looks for a checksum file beside it, finds the scheme of a URI."""
_MALFORMED = "__headgate_malformed"
_FILE = "__headgate_file"
_PLAIN_LOCAL_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # else the options of a single read are not looked at
}

_ANY_AGE = "10000000d"
"""27,000 years: more than lies between any two dates that a file system can hold."""


class FilesReader(Reader):
    """The files of one folder.

    Spark resolves the paths of a micro-batch once more. As soon as one of them looks like a pattern it takes all of
    them as often as there are such, and those that do not once again: so what such a micro-batch holds we read.
    """

    SEEDED = 9
    """The number of the seeded entry of Spark's source log: from a lone N.compact Spark derives to compact every N + 1
    entries, so with the one where a life happened to stand it would do so at each, or never."""

    def __init__(self, source: FilesSource, uid: str) -> None:
        self._source = source
        self.book: FileListBook = FileListBook(uid, source.kind)
        self.bounded = source.bounded
        self._log = -1
        self._taken: dict[int, list[Json]] = {}
        """The entries of micro-batches whose S_n nobody has asked for yet."""
        self._schema: StructType | None = None
        local = self._local()
        self._unread = UnreadFiles(local) if local is not None else None

    def load(self, session: SparkSession) -> DataFrame:
        reader = session.readStream.format(self._source.format)
        if self._source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self._source.max_files_per_trigger)
        if self._source.max_bytes_per_trigger is not None:
            reader = reader.option("maxBytesPerTrigger", self._source.max_bytes_per_trigger)
        # By default Spark drops, for good and without a word, what is a week older than the newest file it has seen.
        reader = reader.option("maxFileAge", _ANY_AGE)
        if self._source.schema is not None:
            reader = reader.schema(self._source.schema)
        folder = self._folder()
        if _PATTERN.search(folder):
            reader = reader.option("basePath", folder)  # Spark knows none of a pattern
        frame = reader.options(**self._source.options).load(_escaped(folder))
        self._schema = frame.schema
        return frame

    def _folder(self) -> str:
        """The folder's URL as it is: Spark does not decode one."""
        path = self._source.path
        local = self._local()
        if local is None:
            if _PATTERN.search(path):
                raise JobInvalid(
                    f"the source folder {path} has characters in its name that Spark takes for a pattern",
                    hint="name one folder, without {}[]*?\\",
                )
            return path
        if not local.is_dir():
            raise StreamFailed(  # it may come back, as what is mounted does
                f"the source folder {local} does not exist", hint="create it, or deploy from the right folder"
            )
        try:
            str(local).encode()
        except UnicodeEncodeError:
            raise JobInvalid(
                f"the source folder {str(local)!r} has a name that is no UTF-8", hint="rename it"
            ) from None
        if _PATTERN.search(str(local)) and ":" in str(local):
            raise JobInvalid(
                f"the source folder {local} has a colon in its path, and one of {{}}[]*?\\: Spark cannot name it",
                hint="rename it without one of them",
            )
        return f"file://{local}"

    def _local(self) -> Path | None:
        return None if "://" in self._source.path else Path(self._source.path).expanduser().absolute()

    def seed(self, folder: Path, position: Json) -> None:
        if position.get("initial"):
            return
        self._log = self.SEEDED
        super().seed(folder, {**position, "offset": json.dumps({"logOffset": self._log}, separators=(",", ":"))})
        entries = ({**entry, "batchId": self._log} for entry in self.book.entries(int(position["count"])))
        text = "\n".join(["v1", *(json.dumps(entry, separators=(",", ":")) for entry in entries)])
        write(folder / "sources" / "0" / f"{self._log}.compact", text)

    def origin(self, folder: Path, batch: int) -> tuple[str, ...]:
        if batch not in self._taken:
            newest = self._newest(super().position(folder, batch))
            numbers = range(self._log + 1, newest + 1)
            self._taken[batch] = [entry for number in numbers for entry in _entries(folder / "sources" / "0", number)]
            self._log = newest
        return tuple(unquote(str(entry["path"])) for entry in self._taken[batch])

    def position(self, folder: Path, batch: int) -> Json:
        self.origin(folder, batch)
        return {**super().position(folder, batch), "count": self.book.note(self._taken.pop(batch))}

    def _newest(self, position: Json) -> int:
        return int(json.loads(position["offset"])["logOffset"])

    def own_frame(self, session: SparkSession, origin: tuple[str, ...]) -> DataFrame | None:
        odd = _with_colon(origin) or any(map(_PATTERN.search, origin))
        return self.frame_of(session, origin) if odd else None

    def frame_of(self, session: SparkSession, origin: tuple[str, ...]) -> DataFrame:
        assert self._schema is not None
        options = {**self._source.options, **(_PLAIN_LOCAL_FILES if _with_colon(origin) else {})}
        return self._read(session, origin, self._schema, options)

    def _read(
        self, session: SparkSession, origin: tuple[str, ...], schema: StructType, options: Mapping[str, str]
    ) -> DataFrame:
        reader = session.read.format(self._source.format).schema(schema).option("basePath", self._folder())
        reader = reader.options(**options)
        alone = {path for path in origin if _PATTERN.search(path) and ":" in path.partition("://")[2]}
        together = [_escaped(path) for path in origin if path not in alone]
        frames = [reader.load(together)] if together else []
        as_it_is = reader.option("__globPaths__", "false")  # no path is a pattern: right for one path at a time
        frames += [as_it_is.load(path) for path in sorted(alone)]
        return reduce(DataFrame.unionAll, frames)

    def find_malformed(self, session: SparkSession, origin: tuple[str, ...]) -> str:
        """Read permissively, and so finding what Spark would have made nulls of."""
        if self._source.format not in ("json", "csv") or self._schema is None:
            return ""
        kept = {name: value for name, value in self._source.options.items() if name.lower() != "mode"}
        options = {**_PLAIN_LOCAL_FILES, **kept, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
        schema = StructType([*self._schema.fields, StructField(_MALFORMED, StringType())])
        frame = self._read(session, origin, schema, options).select(F.input_file_name().alias(_FILE), "*")
        frame = frame.cache()  # Spark refuses to read that column alone
        try:
            found = frame.where(F.col(_MALFORMED).isNotNull()).select(_FILE, _MALFORMED).take(1)
        finally:
            frame.unpersist()
        if not found:
            return ""
        file, record = found[0]
        return f"the first that does not parse is {_line_of(shown(file), record)}in {shown(file)}"

    def follow(self, earlier: Reader) -> bool:
        if isinstance(earlier, FilesReader):
            self._schema = earlier._schema  # the frame is made once, for all lives of the process
            self._unread = earlier._unread  # each file is told of once
        return True

    def missing(self) -> str | None:
        local = self._local()
        if local is None:
            return None
        folder = f"source {self.book.name!r}: its folder {local}"
        try:
            there = local.is_dir()
        except OSError as error:
            return f"{folder} cannot be looked at: {error.strerror}"
        return None if there else f"{folder} is not there: was it renamed or removed, or is it not mounted?"

    def unread(self) -> str | None:
        return self._unread.look() if self._unread is not None else None


def _with_colon(origin: tuple[str, ...]) -> bool:
    local = all(path.startswith("file:") for path in origin)
    return local and any(map(_COLON.search, (path.removeprefix("file:") for path in origin)))


def _line_of(file: str, record: str) -> str:
    """The number of its line, where the file is one of this host and a record is a line."""
    try:
        with Path(file).open("rb") as lines:
            wanted = record.encode()
            return next((f"line {at} " for at, line in enumerate(lines, 1) if line.rstrip(b"\r\n") == wanted), "")
    except OSError:
        return ""


def _escaped(path: str) -> str:
    """The pattern that only `path` itself matches."""
    return _PATTERN.sub(lambda found: f"\\{found[0]}", path)


def _entries(folder: Path, number: int) -> list[Json]:
    """The files of one entry of Spark's source log, which it may have compacted with the older ones."""
    for name in (str(number), f"{number}.compact"):
        path = folder / name
        if path.exists():
            mark = f'"batchId":{number}'  # a compacted one lists all files ever: few of them need be parsed
            lines = path.read_text().splitlines()[1:]
            entries = [json.loads(line) for line in lines if mark in line]
            return [entry for entry in entries if entry["batchId"] == number]
    raise StreamFailed(f"Spark's file source log has no entry {number}")
