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
from headgate.source.positions import InlineBook, PositionBook
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
        write(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
        for number in (batch - 1, batch):
            write(folder / "offsets" / str(number), f"v1\n{head}\n{offset}")
            write(folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')

    def position(self, folder: Path, batch: int) -> Json:
        """S_n right behind micro-batch `batch`; called once for each, in order."""
        lines = (folder / "offsets" / str(batch)).read_text().splitlines()
        if len(lines) != 3:
            raise StreamFailed(f"Spark's offset log of batch {batch} has {len(lines)} lines instead of 3")
        return {"batch": batch, "offset": lines[2]}

    def origin(self, folder: Path, batch: int) -> tuple[str, ...]:
        """What of the source micro-batch `batch` is made of, for people; before its S_n is asked for."""
        return ()

    def until(self, folder: Path, batch: int) -> str:
        """Where in the source it ends, for people."""
        return str(Reader.position(self, folder, batch)["offset"])

    def find_malformed(self, session: SparkSession, origin: tuple[str, ...]) -> str:
        """The first record of this origin that does not parse, for people; empty if all do."""
        return ""

    def own_frame(self, session: SparkSession, origin: tuple[str, ...]) -> DataFrame | None:
        """The micro-batch of this origin as we read it, where Spark's own DataFrame is not to be trusted."""
        return None

    def frame_of(self, session: SparkSession, origin: tuple[str, ...]) -> DataFrame | None:
        """The records of this origin, read once more; None if that cannot be done."""
        return None

    def missing(self) -> str | None:
        """That what it reads from is not there, for people. May hang with it, and so may `unread`."""
        return None

    def unread(self) -> str | None:
        """What nobody has heard of yet of what it never reads. Raises OSError."""
        return None

    def follow(self, earlier: Reader) -> bool:
        """Take over what the reader of the life before, in this process, runs by itself; False if that has ended."""
        return True

    def close(self) -> None:
        """End what the reader runs by itself. It also dies with the process."""
        return


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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
            write(folder / "sources" / "0" / "0", position["begun"])

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
            from headgate.spark.files_reader import FilesReader

            return FilesReader(vertex.source, vertex.uid)
        case RateSource():
            return RateReader(vertex.source, vertex.uid)
        case SocketSource():
            from headgate.spark.socket_reader import SocketReader

            return SocketReader(vertex.source, vertex.storage_uid, life.stream, life.root, life.generation)
    raise JobInvalid(f"source {vertex.uid!r} is of a kind that Spark does not read here: {vertex.source.kind}")
