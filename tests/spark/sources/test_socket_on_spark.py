"""The socket source on Spark: every line once, from any position of its log on, with the server or without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.source.line_log import LogPosition
from headgate.source.line_ranges import LineView
from headgate.source.socket import SocketSource, socket
from headgate.spark.socket_reader import SocketReader
from headgate_contract.errors import Conflict, Fenced, JobInvalid, StorageError
from headgate_contract.ids import Generation, StreamName
from headgate_contract.store import open_store
from scripts.text_server import Text, TextServer, make_text
from tests.runtime.driver.waiting import until
from tests.runtime.source.logs import make_log
from tests.spark.sources.queries import Lives, Taken, rows_of

pytestmark = pytest.mark.spark

TEXT = make_text(21, 6_000)
LINES = TEXT.data.decode().splitlines()


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(TEXT) as one:
        yield one


def source_of(server: TextServer, max_bytes: int = 8_000) -> SocketSource:
    return socket("127.0.0.1", server.port, resume=True, max_bytes_per_trigger=max_bytes)


def reader(tmp_path: Path, source: SocketSource, generation: int) -> SocketReader:
    root = open_store((tmp_path / "root").as_uri())
    root.make()
    return SocketReader(source, "lines", StreamName("words"), root, Generation(generation))


def lines_of(batches: list[Taken]) -> list[str]:
    return [row[0] for batch in batches for row in batch.rows]


def test_each_line_comes_once_in_batches_of_the_limit(lives: Lives, tmp_path: Path, server: TextServer):
    with lives.life(reader(tmp_path, source_of(server), 1)) as query:
        taken = query.take_rows(len(LINES))
    assert sorted(lines_of(taken)) == sorted(LINES)
    assert len(taken) >= len(TEXT.data) // 8_000
    for batch in taken:
        assert sum(len(line.encode()) + 1 for line in lines_of([batch])) <= 8_000


def test_a_life_goes_on_behind_any_position_and_an_older_one_replays_from_the_log(
    lives: Lives, tmp_path: Path, server: TextServer
):
    with lives.life(reader(tmp_path, source_of(server), 1)) as query:
        first = query.take(2)
    with lives.life(reader(tmp_path, source_of(server), 2), first[1].snapshot) as query:
        second = query.take_rows(len(LINES) - len(rows_of(first)))
    assert lines_of(first) == LINES[: len(lines_of(first))]
    assert sorted(lines_of(first + second)) == sorted(LINES)
    server.close()
    with lives.life(reader(tmp_path, source_of(server, 1 << 20), 3), first[0].snapshot) as query:
        again = query.take_rows(len(LINES) - len(first[0].rows))
    assert rows_of(again) == rows_of([first[1], *second])
    with lives.life(reader(tmp_path, source_of(server, 1 << 20), 4)) as query:
        assert sorted(lines_of(query.take_rows(len(LINES)))) == sorted(LINES)


def test_large_batches_are_split_into_ranges_of_whole_lines(lives: Lives, tmp_path: Path):
    text = make_text(22, 150_000)
    with TextServer(text) as server, lives.life(reader(tmp_path, source_of(server, 1 << 29), 1)) as query:
        partitions = []
        query.before_rows = lambda frame: partitions.append(frame.rdd.getNumPartitions())
        log = LineView(make_log(tmp_path / "root"), 1)
        end = LogPosition(1, len(text.data))
        until(
            lambda: log.latest(log.beginning(), None) == end, "all of it is there, of which the first batch has a part"
        )
        taken = query.take_rows(len(text.line_ends))
    assert max(partitions) >= 2
    assert sorted(lines_of(taken)) == sorted(text.data.decode().splitlines())


def test_a_stream_without_its_server_waits_and_goes_on_when_it_comes(lives: Lives, tmp_path: Path):
    end = TEXT.line_ends[99]
    first = TextServer(replace(TEXT, data=TEXT.data[: end + 5]))
    with first, lives.life(reader(tmp_path, source_of(first), 1)) as query:
        assert len(rows_of(query.take_rows(100))) == 100
        first.close()
        with TextServer(TEXT, port=first.port) as again:
            assert lines_of(query.take_rows(len(LINES) - 100))[0] == LINES[100]
        assert again.resumed == [end]
        assert query.failure() is None


def test_a_line_that_is_too_long_fails_the_query_by_name(lives: Lives, tmp_path: Path):
    long = Text(b"short\n" + b"x" * 5_000 + b"\n", [6, 5_007], [1, 2], ["short", "x" * 5_000])
    with TextServer(long) as server:
        source = socket("127.0.0.1", server.port, resume=True, max_line_bytes=1_000)
        with lives.life(reader(tmp_path, source, 1)) as query:
            said = query.wait_for_failure()
    assert f"StreamFailed: source 'lines': 127.0.0.1:{server.port} sent a line of more than 1000 bytes" in said
    assert "raise the source's max_line_bytes" in said


def test_a_snapshot_whose_lines_are_gone_is_refused_before_anything_is_read(
    lives: Lives, tmp_path: Path, server: TextServer
):
    with lives.life(reader(tmp_path, source_of(server), 1)) as query:
        first = query.take(1)[0]
    (tmp_path / "root" / "streams" / "words" / "logs" / "lines" / "00000001.lines").unlink()
    restored = reader(tmp_path, source_of(server), 2)
    with pytest.raises(StorageError, match=r"00000001\.lines is gone"), lives.life(restored, first.snapshot):
        pass


def test_an_overtaken_driver_reads_nothing(lives: Lives, tmp_path: Path, server: TextServer):
    with lives.life(reader(tmp_path, source_of(server), 2)) as query:
        query.take(1)
    with pytest.raises(Fenced), lives.life(reader(tmp_path, source_of(server), 1)):
        pass
    with pytest.raises(Conflict), lives.life(reader(tmp_path, source_of(server), 2)):
        pass


def test_a_root_that_is_no_file_system_is_refused_by_name(server: TextServer):
    with pytest.raises(JobInvalid, match="a socket source keeps its log on a file system, and memory://x is none"):
        SocketReader(source_of(server), "lines", StreamName("words"), open_store("memory://x"), Generation(1))
