"""What a file sink has staged is not for everybody; what it publishes is as the umask says, for any reader."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headgate.sink.base import Group, SinkCommitter
from headgate.sink.files import files
from headgate_contract.ids import CheckpointId, Generation
from tests.runtime.sink.world import SINK, STREAM, Handle, batch, task, visible_ids


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def for_all(top: Path) -> list[str]:
    """The files below `top` that anybody may read."""
    found = [path for path in top.rglob("*") if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o007]
    return sorted(str(path.relative_to(top)) for path in found)


def begun(generation: int, target: Path, abandoned: Iterable[Group] = ()) -> SinkCommitter:
    sink = files(target)
    sink.check()
    committer = sink.committer(STREAM, SINK, Generation(generation), "first")
    committer.begin(frozenset(), [], list(abandoned), frozenset())
    return committer


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_what_is_staged_and_joined_is_hidden_and_what_is_published_follows_the_umask(
    tmp_path: Path, umask: int, format: str
) -> None:
    target = tmp_path / "out"
    sink = files(target, format=format)  # type: ignore[arg-type]
    committer = begun(1, target)
    handles: list[Handle] = []
    for epoch in (1, 2):
        writer = sink.writer(task(epoch=epoch))
        writer.write(batch([epoch]))
        handles += writer.finish()
        assert for_all(target) == []
    ready = committer.prepare(handles, joinable=True)
    assert len(ready) == 1, "they were joined"
    assert for_all(target) == []
    committer.commit(CheckpointId(1), ready)
    shown = [path for path in target.iterdir() if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in shown} == {0o666 & ~umask}
    begun(2, target, abandoned=[(CheckpointId(1), ready)])
    assert for_all(target) == [], "taken back, it is hidden again"


def test_another_user_reads_the_output_with_any_reader_of_the_folder() -> None:
    """One that lists what is below it, too: pyarrow looks into each folder before it passes over those with a `_`."""
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # not pytest's own, which nobody else can enter
        target = Path(folder) / "out"
        committer = begun(1, target)
        writer = files(target).writer(task())
        writer.write(batch([1, 2]))
        handles = committer.prepare(writer.finish())
        committer.commit(CheckpointId(1), handles)
        others = files(target).writer(task(epoch=2))
        others.write(batch([3]))
        assert len(others.finish()) == 1, "something is staged as well"
        folders = [path for path in (target, *target.rglob("*")) if path.is_dir()]
        assert all(path.stat().st_mode & 0o005 == 0o005 for path in folders)
        if os.getuid() == 0:
            os.seteuid(65534)
        try:
            assert visible_ids(target.as_uri()) == [1, 2]
        finally:
            os.seteuid(os.getuid())
            os.umask(before)
