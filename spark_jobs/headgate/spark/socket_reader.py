"""The socket source on Spark: a thread of the driver fills a log, and Spark reads the log by positions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import StringType, StructField, StructType

from headgate.source.line_log import LineLog, LogPosition
from headgate.source.line_ranges import LineRange, LineView, read_lines
from headgate.source.positions import InlineBook
from headgate.source.socket import SocketSource
from headgate.source.socket_feed import SocketFeed
from headgate.spark.readers import Reader
from headgate_contract.errors import JobInvalid
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.store import ObjectStore
from headgate_contract.store_local import LocalStore

Json = dict[str, Any]
FORMAT = "headgate-lines"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class SocketReader(Reader):
    """A socket source in one life: its generation's segment of the log, and the thread that fills it.

    The thread is started by a generation's first life and goes on through all of its restarts.
    """

    def __init__(
        self, source: SocketSource, uid: str, stream: StreamName, root: ObjectStore | None, generation: Generation
    ) -> None:
        if root is None or root.local is None:
            raise JobInvalid(
                f"source {uid!r}: a socket source keeps its log on a file system, and {root and root.url} is none",
                hint="put the storage root on a file system that driver and executors see, or use another source",
            )
        self._source = source
        self._root = root.local
        self._folder = StreamPaths(stream).source_log(VertexUid(uid))
        self._log = LineLog(root, self._folder, uid)
        self._segment = generation
        self._feed: SocketFeed | None = None
        self.book = InlineBook(uid, source.kind)

    def load(self, session: SparkSession) -> DataFrame:
        if int(session.conf.get(_BATCH_ROWS) or 0) < 1:
            session.conf.set(_BATCH_ROWS, str(2**31 - 1))  # as many, but a Python data source does not take 0 for it
        session.dataSource.register(LinesDataSource)
        options = {
            "root": str(self._root),
            "folder": self._folder,
            "source": self._log.source,
            "segment": str(self._segment),
            "max_bytes": str(self._source.max_bytes_per_trigger),
            "parallelism": str(session.sparkContext.defaultParallelism),
        }
        return session.readStream.format(FORMAT).options(**options).load()

    def seed(self, folder: Path, position: Json) -> None:
        writer = self._log.begin(self._segment, resumes=self._source.resume) if self._feed is None else None
        if not position.get("initial"):
            place = LogPosition.of(json.loads(position["offset"]))
            self._log.check(self._log.spans(self._segment), place)
        super().seed(folder, position)
        if writer is not None:
            self._feed = SocketFeed(self._source, writer)
            self._feed.start()

    def follow(self, earlier: Reader) -> bool:
        if isinstance(earlier, SocketReader) and earlier._feed is not None:
            self._feed = earlier._feed
            return self._feed.is_alive()
        return True

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()


class LinesDataSource(DataSource):
    """The log as a Python data source. Its options say all: it runs in processes of Spark's."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return StructType([StructField("value", StringType())])

    def streamReader(self, schema: StructType) -> LinesStreamReader:  # noqa: N802 - Spark's name
        return LinesStreamReader(self.options)


class LinesStreamReader(DataSourceStreamReader):
    """Offsets are positions in the log: {"segment": ..., "byte": ...}."""

    def __init__(self, options: Mapping[str, str]) -> None:
        log = LineLog(LocalStore(Path(options["root"])), options["folder"], options["source"])
        self._view = LineView(log, int(options["segment"]))
        self._max_bytes = int(options["max_bytes"])
        self._parallelism = int(options["parallelism"])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._max_bytes)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return self._view.beginning().to_json()

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:  # noqa: N802
        begin = LogPosition.of(start) if start is not None else self._view.beginning()
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self._view.latest(begin, most).to_json()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        found = self._view.ranges(LogPosition.of(start), LogPosition.of(end), self._parallelism)
        return [InputPartition((part.path, part.start, part.end)) for part in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([read_lines(LineRange(*partition.value))], names=["value"])
