"""Small files of a checkpoint's micro-batches become one for each subtask, with the same rows, whatever goes wrong."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from headgate.sink import files_joining
from headgate.sink.files import files
from headgate.sink.files_committer import FilesCommitter
from headgate.sink.files_joining import bundles
from headgate.sink.files_layout import SinkFile, file_of
from headgate.sink.files_writer import FilesWriter
from headgate_contract.errors import StorageError
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.sink.stepping_store import SteppingStore
from tests.runtime.sink.world import SINK, STREAM, Handle, batch, task, visible_ids

FORMATS = ("parquet", "json", "csv")


def stage(
    store: ObjectStore,
    rows: pa.RecordBatch | Iterable[int],
    *,
    subtask: int = 0,
    epoch: int = 1,
    format: str = "parquet",
) -> tuple[Handle, ...]:
    writer = FilesWriter(store, replace(task(subtask=subtask, epoch=epoch)), format, "zstd")
    writer.write(rows if isinstance(rows, pa.RecordBatch) else batch(rows))
    return writer.finish()


def committer(store: ObjectStore) -> FilesCommitter:
    found = FilesCommitter(store, STREAM, SINK, Generation(1), "first", threads=2, compression="zstd")
    found.begin(frozenset(), [], [], frozenset())
    return found


def staged(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list(f"_headgate/{STREAM}/{SINK}/staged")]


def published(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list("") if "/" not in info.path]


@pytest.fixture(params=["a folder", "another store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    target = open_store((tmp_path / "out").as_uri() if request.param == "a folder" else f"memory://{uuid.uuid4().hex}")
    target.make()
    files(tmp_path / "out").check()
    return target


def test_output_above_what_a_checkpoint_joins_is_told_once_and_published_whole(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = committer(store)
    for number in (1, 2):
        handles = [handle for epoch in range(1, 6) for handle in stage(store, [10 * number + epoch], epoch=epoch)]
        monkeypatch.setattr(files_joining, "MOST_BYTES", 2 * file_of(handles[0]).bytes + 1)
        prepared = sink.prepare(handles, joinable=True)
        assert sorted(file_of(handle).rows for handle in prepared) == [1, 1, 1, 2]
        sink.commit(CheckpointId(number), prepared)
        told = [record.getMessage() for record in caplog.records if "as micro-batches have" in record.getMessage()]
        assert [text.partition(" are published")[0] for text in told] == [
            f"3 small ones of a checkpoint's 5 files below _headgate/{STREAM}/{SINK}/staged"
        ]


@pytest.mark.parametrize("format", FORMATS)
def test_of_each_subtask_a_checkpoint_publishes_one_file(store: ObjectStore, format: str) -> None:
    sink = committer(store)
    handles = [
        handle
        for epoch in range(1, 8)
        for subtask in (0, 1)
        for handle in stage(store, [epoch * 10 + subtask], subtask=subtask, epoch=epoch, format=format)
    ]
    prepared = sink.prepare(handles, joinable=True)
    assert [(file_of(handle).subtask, file_of(handle).rows) for handle in prepared] == [(0, 7), (1, 7)]
    sink.commit(CheckpointId(1), prepared)
    assert len(published(store)) == 2
    assert visible_ids(store.url, format) == sorted(e * 10 + s for e in range(1, 8) for s in (0, 1))
    assert staged(store) == []
    sizes = {info.path: info.length for info in store.list("")}
    assert sorted(file_of(handle).bytes for handle in prepared) == sorted(sizes[path] for path in published(store))


def test_rows_keep_their_order_values_and_types(tmp_path: Path) -> None:
    rng = random.Random(5)
    store = open_store((tmp_path / "out").as_uri())
    store.make()
    sink = committer(store)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("text", pa.string()),
            ("tags", pa.list_(pa.struct([("a", pa.decimal128(9, 2)), ("b", pa.binary())]))),
            ("none", pa.float32()),
        ]
    )
    pieces = [
        pa.RecordBatch.from_pylist(
            [
                {
                    "id": rng.randrange(1 << 60),
                    "at": rng.randrange(1 << 50),
                    "text": rng.choice(['"', "\n", "é", None, ""]),
                    "tags": rng.choice([None, [], [{"a": None, "b": b"\0\n"}]]),
                    "none": None,
                }
                for _ in range(rng.randrange(1, 40))
            ],
            schema,
        )
        for _ in range(9)
    ]
    handles = [handle for epoch, piece in enumerate(pieces) for handle in stage(store, piece, epoch=epoch)]
    sink.commit(CheckpointId(1), sink.prepare(handles, joinable=True))
    found = ds.dataset(str(tmp_path / "out"), format="parquet").to_table(use_threads=False)
    assert found.schema.equals(schema)
    assert found.to_pylist() == pa.Table.from_batches(pieces).to_pylist()


def test_a_csv_header_is_kept_once_whatever_its_columns_are_called(tmp_path: Path) -> None:
    store = open_store((tmp_path / "out").as_uri())
    store.make()
    sink = committer(store)
    odd = 'two\nlines, and "quotes"'
    handles = [
        handle
        for n in range(3)
        for handle in stage(store, pa.RecordBatch.from_pydict({"id": [n], odd: [f"id\n{n}"]}), epoch=n, format="csv")
    ]
    sink.commit(CheckpointId(1), sink.prepare(handles, joinable=True))
    (path,) = published(store)
    import csv

    with (tmp_path / "out" / path).open(newline="") as file:
        found = list(csv.reader(file))
    assert [row[0] for row in found] == ["id", "0", "1", "2"]


def test_what_has_other_columns_stays_apart(store: ObjectStore) -> None:
    sink = committer(store)
    shapes = [{"id": [1]}, {"id": [2]}, {"id": [3], "more": ["x"]}, {"id": [4], "more": ["y"]}, {"id": [5]}]
    handles = [h for n, rows in enumerate(shapes) for h in stage(store, pa.RecordBatch.from_pydict(rows), epoch=n)]
    prepared = sink.prepare(handles, joinable=True)
    assert [file_of(handle).rows for handle in prepared] == [2, 2, 1]
    sink.commit(CheckpointId(1), prepared)
    assert staged(store) == []


def test_an_attempt_that_comes_to_nothing_leaves_nothing_and_loses_nothing(store: ObjectStore) -> None:
    sink = committer(store)
    first = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]
    sink.prepare(first, joinable=True)
    more = [*first, *stage(store, [3], epoch=3)]
    sink.prepare(more, joinable=True)
    last = [*more, *stage(store, [4], epoch=4)]
    sink.commit(CheckpointId(3), sink.prepare(last, joinable=True))
    assert visible_ids(store.url) == [1, 2, 3, 4]
    assert (len(published(store)), staged(store)) == (1, [])


def test_what_could_not_be_stored_is_joined_again_with_what_came_since(store: ObjectStore) -> None:
    sink = committer(store)
    joined = sink.prepare([*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)], joinable=True)
    again = sink.prepare([*joined, *stage(store, [3], epoch=3)], joinable=True)
    sink.commit(CheckpointId(2), again)
    assert visible_ids(store.url) == [1, 2, 3]
    assert (len(published(store)), staged(store)) == (1, [])


def test_what_an_earlier_attempt_may_complete_with_is_not_joined(store: ObjectStore) -> None:
    sink = committer(store)
    handles = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]
    assert sink.prepare(handles) == handles


def test_what_completes_with_an_earlier_attempt_is_missed_by_nobody(store: ObjectStore) -> None:
    """A checkpoint whose barrier came while a savepoint was under way is given what that completes with, too."""
    sink = committer(store)
    first = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]
    given = [*first, *stage(store, [3], epoch=3)]
    joined = sink.prepare(first, joinable=True)
    sink.commit(CheckpointId(1), joined)
    assert sink.prepare(given) == given
    sink.commit(CheckpointId(2), given[2:])
    assert visible_ids(store.url) == [1, 2, 3]
    assert staged(store) == []


def test_one_that_completes_while_a_later_one_prepares_is_missed_by_nobody(tmp_path: Path) -> None:
    files(tmp_path / "out").check()
    store = open_store((tmp_path / "out").as_uri())
    joined: list[Handle] = []
    left = [1]

    def before(call: str) -> None:
        if call.startswith("sync") and joined and left:
            left.clear()
            sink.commit(CheckpointId(1), joined)

    sink = FilesCommitter(SteppingStore(store, before), STREAM, SINK, Generation(1), "first")
    sink.begin(frozenset(), [], [], frozenset())
    first = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]
    given = [*first, *stage(store, [3], epoch=3)]
    joined += sink.prepare(first, joinable=True)
    assert sink.prepare(given) == given
    assert not left, "it completed in between"
    sink.commit(CheckpointId(2), given[2:])
    assert visible_ids(store.url) == [1, 2, 3]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), StorageError("gone"), pa.ArrowInvalid("odd")]
)
def test_files_that_cannot_be_joined_are_published_as_they_are(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sink = committer(store)
    handles = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(files_joining._Parquet, "write", fail)
    before = staged(store)
    assert sink.prepare(handles, joinable=True) == handles
    assert staged(store) == before
    sink.commit(CheckpointId(1), handles)
    assert visible_ids(store.url) == [1, 2]


def test_a_crash_while_joining_leaves_what_the_next_life_deletes(tmp_path: Path) -> None:
    store = open_store((tmp_path / "out").as_uri())
    store.make()
    sink = committer(store)
    joined = sink.prepare([*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)], joinable=True)
    assert len(staged(store)) == 3
    later = FilesCommitter(store, STREAM, SINK, Generation(2), "first")
    later.begin(frozenset({CheckpointId(1)}), [(CheckpointId(1), joined)], [], frozenset())
    assert visible_ids(store.url) == [1, 2]
    assert staged(store) == []


def test_what_a_subsumed_attempt_had_joined_is_deleted(store: ObjectStore) -> None:
    sink = committer(store)
    for number in range(3):
        first = [*stage(store, [number * 10 + 1], epoch=1), *stage(store, [number * 10 + 2], epoch=2)]
        sink.prepare(first, joinable=True)
        given = [*first, *stage(store, [number * 10 + 3], epoch=3)]
        sink.commit(CheckpointId(2 * number + 2), sink.prepare(given))
    assert staged(store) == []
    assert visible_ids(store.url) == sorted(number * 10 + n for number in range(3) for n in (1, 2, 3))


def test_what_it_was_made_from_is_deleted_several_at_a_time(tmp_path: Path) -> None:
    """Each is a request, and the thread that writes the log waits for them."""
    files(tmp_path / "out").check()
    store = open_store((tmp_path / "out").as_uri())
    together = threading.Barrier(2, timeout=20)

    def before(call: str) -> None:
        if call.startswith("delete") and "/staged/" in call:
            together.wait()

    sink = FilesCommitter(SteppingStore(store, before), STREAM, SINK, Generation(1), "first", threads=2)
    sink.begin(frozenset(), [], [], frozenset())
    handles = [handle for epoch in range(4) for handle in stage(store, [epoch], epoch=epoch)]
    sink.commit(CheckpointId(1), sink.prepare(handles, joinable=True))
    assert staged(store) == []
    assert not together.broken


def test_what_is_joined_too_late_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt has expired while it was joining, and the next one has completed."""
    files(tmp_path / "out").check()
    store = open_store((tmp_path / "out").as_uri())
    sink = committer(store)
    first = [*stage(store, [1], epoch=1), *stage(store, [2], epoch=2)]
    write = files_joining._Parquet.write

    def slowly(*arguments: Any) -> None:
        write(*arguments)
        monkeypatch.setattr(files_joining._Parquet, "write", write)
        sink.commit(CheckpointId(2), first)

    monkeypatch.setattr(files_joining._Parquet, "write", slowly)
    sink.prepare(first, joinable=True)
    assert visible_ids(store.url) == [1, 2]
    assert staged(store) == []


def test_wide_rows_take_no_more_memory_than_a_row_group_of_them(tmp_path: Path) -> None:
    files(tmp_path / "out").check()
    store = open_store((tmp_path / "out").as_uri())
    sink = committer(store)
    wide = pa.RecordBatch.from_pydict({"id": list(range(500)), "text": ["x" * 20_000] * 500})
    handles = [handle for epoch in range(30) for handle in stage(store, wide, epoch=epoch)]
    before = pa.total_allocated_bytes()
    most = [0]
    real = files_joining.ParquetFile.write

    def watched(self: Any, rows: pa.RecordBatch) -> None:
        real(self, rows)
        most[0] = max(most[0], pa.total_allocated_bytes() - before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_joining.ParquetFile, "write", watched)
        (joined,) = sink.prepare(handles, joinable=True)
    assert file_of(joined).rows == 15_000
    assert most[0] < 200 << 20, "300 MB of rows were read"


def file(subtask: int, size: int, name: str, suffix: str = ".parquet") -> SinkFile:
    return SinkFile(name, 1, subtask, name, suffix, 1, size)


def test_only_what_is_small_is_joined_and_every_file_is_in_one_bundle() -> None:
    rng = random.Random(3)
    for _ in range(200):
        given = [
            file(rng.randrange(3), rng.choice([1, 5, 60, 99, 100, 300]), f"f{n}", rng.choice([".json", ".csv"]))
            for n in range(rng.randrange(20))
        ]
        most = rng.choice([150, 10_000])
        found = bundles(given, target_bytes=100, most_bytes=most)
        again = sum(each.bytes for bundle in found if len(bundle) > 1 for each in bundle)
        assert again <= most + 100
        assert Counter(each.staged for bundle in found for each in bundle) == Counter(each.staged for each in given)
        for bundle in found:
            assert len({(each.subtask, each.suffix) for each in bundle}) == 1
            assert len(bundle) == 1 or sum(each.bytes for each in bundle) <= 100
            assert [given.index(each) for each in bundle] == sorted(given.index(each) for each in bundle)
        small = [each for each in given if each.bytes <= 5]
        if sum(each.bytes for each in given) <= min(100, most) and small == given:
            assert len(found) == len({(each.subtask, each.suffix) for each in given})
