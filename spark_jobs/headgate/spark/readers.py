"""Sources on Spark: how each is read, what its S_n is, and how a fresh checkpoint folder is seeded at S_k."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headgate.driver.engine import EngineSetup
from headgate.job.graph import SourceVertex
from headgate.source.files import FilesSource
from headgate.source.positions import FileListBook, InlineBook, PositionBook
from headgate.source.rate import RateSource
from headgate.source.socket import SocketSource
from headgate_contract.errors import JobInvalid, RestoreRefused, StreamFailed

Json = dict[str, Any]


class Reader(ABC):
    """One source in one life."""

    book: PositionBook
    bounded = False
    """Its query takes what there is, and ends."""

    @abstractmethod
    def load(self, session: SparkSession) -> DataFrame:
        """The streaming DataFrame."""

    def seed(self, folder: Path, position: Json) -> None:
        """Make `folder` one with which Spark goes on right behind `position`. Nothing to do before the first batch."""
        if position.get("initial"):
            return
        offset = str(position["offset"])
        batch = max(int(position["batch"]), 1)  # with no batch before it Spark would plan the last one once more
        _write(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
        for number in (batch - 1, batch):
            _write(folder / "offsets" / str(number), f"v1\n{head}\n{offset}")
            _write(folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')

    def position(self, folder: Path, batch: int) -> Json:
        """S_n right behind micro-batch `batch`; called once for each, in order."""
        lines = (folder / "offsets" / str(batch)).read_text().splitlines()
        if len(lines) != 3:
            raise StreamFailed(f"Spark's offset log of batch {batch} has {len(lines)} lines instead of 3")
        return {"batch": batch, "offset": lines[2]}

    def follow(self, earlier: Reader) -> bool:
        """Take over what the reader of the life before, in this process, runs by itself; False if that has ended."""
        return True

    def close(self) -> None:
        """End what the reader runs by itself. It also dies with the process."""
        return


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class FilesReader(Reader):
    """Spark's file source; its position is the list of the files that it has handed over."""

    SEEDED = 9
    """The number of the seeded entry of Spark's source log: from a lone N.compact Spark derives to compact every N + 1
    entries, so with the one where a life happened to stand it would do so at each, or never."""

    def __init__(self, source: FilesSource, uid: str) -> None:
        self._source = source
        self.book: FileListBook = FileListBook(uid, source.kind)
        self.bounded = source.bounded
        self._log = -1

    def load(self, session: SparkSession) -> DataFrame:
        path = self._source.path
        if "://" not in path:
            absolute = Path(path).expanduser().absolute()
            if not absolute.is_dir():
                raise StreamFailed(  # it may come back, as what is mounted does
                    f"the source folder {absolute} does not exist", hint="create it, or deploy from the right folder"
                )
            if set("{}[]*?\\") & set(str(absolute)):
                raise JobInvalid(
                    f"the source folder {absolute} has characters in its name that Spark takes for a pattern",
                    hint="give it a name without {}[]*?\\",
                )
            path = f"file://{absolute}"  # as it is: Spark does not decode a URI
        reader = session.readStream.format(self._source.format)
        if self._source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self._source.max_files_per_trigger)
        if self._source.max_bytes_per_trigger is not None:
            reader = reader.option("maxBytesPerTrigger", self._source.max_bytes_per_trigger)
        reader = reader.option("maxFileAge", "36500d")  # by default Spark drops what is a week older than the newest
        if self._source.schema is not None:
            reader = reader.schema(self._source.schema)
        return reader.options(**self._source.options).load(path)

    def seed(self, folder: Path, position: Json) -> None:
        if position.get("initial"):
            return
        self._log = self.SEEDED
        super().seed(folder, {**position, "offset": json.dumps({"logOffset": self._log}, separators=(",", ":"))})
        entries = ({**entry, "batchId": self._log} for entry in self.book.entries(int(position["count"])))
        text = "\n".join(["v1", *(json.dumps(entry, separators=(",", ":")) for entry in entries)])
        _write(folder / "sources" / "0" / f"{self._log}.compact", text)

    def position(self, folder: Path, batch: int) -> Json:
        position = super().position(folder, batch)
        newest = int(json.loads(position["offset"])["logOffset"])
        for number in range(self._log + 1, newest + 1):
            self.book.note(self._entries(folder / "sources" / "0", number))
        self._log = newest
        return {**position, "count": self.book.note([])}

    def _entries(self, folder: Path, number: int) -> list[Json]:
        """The files of one entry of Spark's source log, which it may have compacted with the older ones."""
        for name in (str(number), f"{number}.compact"):
            path = folder / name
            if path.exists():
                mark = f'"batchId":{number}'  # a compacted one lists all files ever: few of them need be parsed
                lines = path.read_text().splitlines()[1:]
                entries = [json.loads(line) for line in lines if mark in line]
                return [entry for entry in entries if entry["batchId"] == number]
        raise StreamFailed(f"Spark's file source log has no entry {number}")


class RateReader(Reader):
    """Spark's rate sources; the start time of `rate` goes with the position."""

    def __init__(self, source: RateSource, uid: str) -> None:
        self._source = source
        self._pace = source.rows_per_second if source.rows_per_batch is None else None
        self.book = InlineBook(uid, source.kind)

    def load(self, session: SparkSession) -> DataFrame:
        if self._source.rows_per_batch is not None:
            reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", self._source.rows_per_batch)
        else:
            reader = session.readStream.format("rate").option("rowsPerSecond", self._source.rows_per_second)
        return reader.option("numPartitions", session.sparkContext.defaultParallelism).load()

    def seed(self, folder: Path, position: Json) -> None:
        told = position.get("rows_per_second", self._pace)
        if told != self._pace and not position.get("initial"):
            raise RestoreRefused(
                f"source {self.book.name!r} made {_pace(told)} in the snapshot and {_pace(self._pace)} in the job: "
                "its position would be that of other records",
                hint="set the rate back, or give the source a new uid and start with --fresh",
            )
        super().seed(folder, position)
        if "begun" in position:
            _write(folder / "sources" / "0" / "0", position["begun"])

    def position(self, folder: Path, batch: int) -> Json:
        position = {**super().position(folder, batch), "rows_per_second": self._pace}
        begun = folder / "sources" / "0" / "0"
        return {**position, "begun": begun.read_text()} if begun.exists() else position


def _pace(rows_per_second: int | None) -> str:
    return "batches of fixed size" if rows_per_second is None else f"{rows_per_second} rows a second"


def reader_of(vertex: SourceVertex, life: EngineSetup) -> Reader:
    """The reader of a source, for one life."""
    match vertex.source:
        case FilesSource():
            return FilesReader(vertex.source, vertex.uid)
        case RateSource():
            return RateReader(vertex.source, vertex.uid)
        case SocketSource():
            from headgate.spark.socket_reader import SocketReader

            return SocketReader(vertex.source, vertex.storage_uid, life.stream, life.shared, life.generation)
    raise JobInvalid(f"source {vertex.uid!r} is of a kind that Spark does not read here: {vertex.source.kind}")
