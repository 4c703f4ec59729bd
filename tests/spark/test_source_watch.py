"""A source's folder that goes away is told of: Spark itself takes it for an empty one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.source.files import files
from headgate.spark import source_watch
from headgate.spark.files_reader import FilesReader
from headgate.spark.source_watch import SourceWatch
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.spark  # it needs no session, but Spark's package


@pytest.fixture
def halting(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setattr(source_watch, "_MISSING_S", 0.01)
    halting = threading.Event()
    yield halting
    halting.set()


def test_a_source_folder_that_is_renamed_while_it_runs_is_told_with_its_source(
    tmp_path: Path, halting: threading.Event
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "a").write_text("1")
    said: list[str] = []
    watch = SourceWatch(FilesReader(files(str(folder)), "records"), halting, said.append)
    assert watch.missing is None
    folder.rename(tmp_path / "away")
    until(lambda: watch.missing, "the folder is missed")
    assert watch.missing == (
        f"source 'records': its folder {folder} is not there: was it renamed or removed, or is it not mounted?"
    )


def test_a_source_that_ends_may_have_read_all_of_a_folder_that_is_gone(
    tmp_path: Path, halting: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    reader = FilesReader(files(str(tmp_path / "gone"), bounded=True), "records")
    monkeypatch.setattr(reader, "unread", looked.set)
    watch = SourceWatch(reader, halting, print)
    assert looked.wait(20)
    assert watch.missing is None
