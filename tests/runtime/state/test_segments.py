"""Segment files: the format is frozen, a newer one and a foreign one are refused, mapped files are kept and bounded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.batches import KeyBatch
from headgate.state.descriptors import StateDescriptor
from headgate.state.errors import DamagedStateFile, StateFormatTooNew, StateWriteFailed
from headgate.state.hashmap import HashMapBackend
from headgate.state.segments import Layout, Segment, SegmentCache, empty_segment, read_segment, write_segment
from headgate.state.versions import StateFile, StateVersion
from tests.runtime.state.runs import HASHES, no_file_beyond
from tests.runtime.state.samples import (
    COUNTS,
    KEYS,
    MAX_PARALLELISM,
    TOTALS,
    VALUES,
    WHOLE,
    batch_of,
    rows_of,
    values_of,
)

GOLDEN = Path(__file__).parent / "golden" / "segment-1.arrow"


def write_with(path: Path, batch: pa.RecordBatch, metadata: dict[str, str]) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema.with_metadata(metadata)) as writer:
        writer.write_batch(batch)
    return path


def totals_segment(directory: Path) -> Path:
    """A segment of a state that has everything: two key columns, a namespace, deletions over an older segment."""
    backend = HashMapBackend()
    version: StateVersion | None = None
    for rows, gone in ((KEYS["totals"][20:], []), (KEYS["totals"][:20], KEYS["totals"][10:15])):
        with backend.open(version, [TOTALS], WHOLE, MAX_PARALLELISM, directory, "golden") as session:
            batch, ordered = batch_of(TOTALS, rows, HASHES)
            values = [VALUES["totals"][1 + KEYS["totals"].index(row) % 3] for row in ordered]
            session.table("totals").put(batch, values_of(TOTALS, values))
            session.table("totals").delete(batch_of(TOTALS, gone, HASHES)[0])
            version = session.seal()
    assert version is not None
    return directory / version.files[0].name


def test_a_segment_written_by_an_old_release_can_be_read(tmp_path: Path) -> None:
    """Format 1, as the first release wrote it."""
    (tmp_path / "golden.arrow").write_bytes(GOLDEN.read_bytes())
    schema = pa.ipc.open_file(pa.memory_map(str(GOLDEN))).schema
    state = StateDescriptor.from_json(json.loads(schema.metadata[b"headgate.state"]))
    assert state == TOTALS
    file = StateFile("golden.arrow", GOLDEN.stat().st_size, "totals", WHOLE, 20)
    version = StateVersion("hashmap", "old", WHOLE, MAX_PARALLELISM, (file,), (state,))
    with HashMapBackend().open(version, [TOTALS], WHOLE, MAX_PARALLELISM, tmp_path, "s") as session:
        batch, ordered = batch_of(TOTALS, KEYS["totals"][:20], HASHES)
        values, found = session.table("totals").get(batch)
        assert found.tolist() == [KEYS["totals"].index(row) not in range(10, 15) for row in ordered]
        expected = [VALUES["totals"][1 + KEYS["totals"].index(row) % 3] for row in ordered]
        assert [row for row, here in zip(rows_of(values), found, strict=True) if here] == [
            row for row, here in zip(expected, found, strict=True) if here
        ]


def test_the_columns_of_a_file_are_those_of_the_format(tmp_path: Path) -> None:
    path = totals_segment(tmp_path)
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    assert reader.num_record_batches == 1
    assert reader.schema.names == ["__hash", "__subhash", "shop", "day", "__namespace", "total", "__tombstone"]
    assert reader.schema.metadata[b"headgate.segment"] == b"1"
    old = pa.ipc.open_file(pa.memory_map(str(GOLDEN))).schema
    assert old.equals(reader.schema, check_metadata=True)
    batch = reader.get_batch(0)
    order = list(zip(batch["__hash"].to_pylist(), batch["__subhash"].to_pylist(), strict=True))
    assert order == sorted(order)
    assert batch.column("total").filter(batch.column("__tombstone")).null_count == 5


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    batch = empty_segment(Layout(COUNTS)).batch
    path = write_with(tmp_path / "a.arrow", batch, {"headgate.segment": "2"})
    with pytest.raises(StateFormatTooNew, match=r"a\.arrow has segment format 2, this release reads up to 1"):
        read_segment(path, Layout(COUNTS))


def test_a_file_that_is_not_this_states_segment_is_refused(tmp_path: Path) -> None:
    layout = Layout(COUNTS)
    batch = empty_segment(layout).batch
    foreign = write_with(tmp_path / "foreign.arrow", batch, {})
    with pytest.raises(DamagedStateFile, match="no segment"):
        read_segment(foreign, layout)
    other = write_with(tmp_path / "other.arrow", empty_segment(Layout(TOTALS)).batch, {"headgate.segment": "1"})
    with pytest.raises(DamagedStateFile, match="other columns"):
        read_segment(other, layout)
    double = tmp_path / "double.arrow"
    with pa.OSFile(str(double), "wb") as sink, pa.ipc.new_file(sink, layout.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    with pytest.raises(DamagedStateFile, match="2 record batches"):
        read_segment(double, layout)


def test_a_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    layout = Layout(COUNTS)
    keys, _ = batch_of(COUNTS, KEYS["counts"], HASHES)
    columns = [
        pa.array(keys.hashes),
        *keys.keys.columns,
        *values_of(COUNTS, [(1, "x")] * 11).columns,
        pa.array([False] * 11),
    ]
    segment = Segment(layout, pa.table(columns, schema=layout.plain_schema).combine_chunks().to_batches()[0])
    write_segment(segment, tmp_path / "s.arrow")
    before = pa.total_allocated_bytes()
    mapped = read_segment(tmp_path / "s.arrow", layout)
    assert pa.total_allocated_bytes() - before < 1024
    half = mapped.between(int(mapped.hashes[5]), 2**63 - 1)
    assert half.batch.column(0).buffers()[1].address == mapped.batch.column(0).buffers()[1].address


def test_the_cache_keeps_the_most_recently_used(tmp_path: Path) -> None:
    layout = Layout(COUNTS)
    cache = SegmentCache(capacity=2)
    paths = [tmp_path / f"{i}.arrow" for i in range(3)]
    for path in paths:
        write_segment(empty_segment(layout), path)
    first = cache.read(paths[0], layout)
    second = cache.read(paths[1], layout)
    assert cache.read(paths[0], layout) is first
    cache.read(paths[2], layout)
    assert len(cache) == 2
    assert cache.read(paths[0], layout) is first
    assert cache.read(paths[1], layout) is not second


def test_the_cache_lets_deleted_files_go(tmp_path: Path) -> None:
    layout = Layout(COUNTS)
    cache = SegmentCache()
    for number in range(200):
        path = tmp_path / f"{number}.arrow"
        write_segment(empty_segment(layout), path)
        cache.read(path, layout)
        path.unlink()
    assert len(cache) <= 64


def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    backend = HashMapBackend()
    session = backend.open(None, [COUNTS], WHOLE, MAX_PARALLELISM, tmp_path, "s")
    keys = np.arange(-1000, 1000)
    batch = KeyBatch(keys, pa.RecordBatch.from_arrays([pa.array(keys).cast(pa.string())], names=["word"]))
    session.table("counts").put(batch, values_of(COUNTS, [(1, "x" * 20)] * 2000))
    with no_file_beyond(30_000), pytest.raises(StateWriteFailed, match=r"s~\w+\.arrow cannot be written.*make room"):
        session.seal()
    assert list(tmp_path.iterdir()) == []
