"""A query that waits for records gives no sign of standing still, one whose source hangs always the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headgate.driver import clock
from headgate.spark import query_signs
from headgate.spark.query_signs import QuerySigns
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.spark


NEVER = "30000 days"
"""Spark's triggers come at multiples of it since 1970: none while a test runs."""


def hanging(hangs: Path) -> type[DataSource]:
    """A source without records, which hangs for as long as the file is there, and says so by another one."""
    file, hanging_now = str(hangs), str(entered(hangs))

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"n": 0}

        def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802
            import os
            import time

            while os.path.exists(file):
                open(hanging_now, "w").close()
                time.sleep(0.05)
            return {"n": 0}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return []

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return iter(())

    class Hanging(DataSource):
        @classmethod
        def name(cls) -> str:
            return "hanging"

        def schema(self) -> str:
            return "n INT"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802
            return Reader()

    return Hanging


def entered(hangs: Path) -> Path:
    return hangs.with_name("it-hangs")


def asked(newest: Callable[[], Hashable | None], times: int) -> list[Hashable | None]:
    return [newest() for _ in range(times)]


def test_a_source_that_hangs_gives_the_same_sign_and_an_idle_one_does_not(
    session: SparkSession, tmp_path: Path
) -> None:
    hangs = tmp_path / "hangs"
    session = session.newSession()  # the setting below is not the others'
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")  # a Python data source takes no 0
    session.dataSource.register(hanging(hangs))
    stream = session.readStream.format("hanging").load().writeStream.foreachBatch(lambda frame, number: None)
    query = stream.option("checkpointLocation", str(tmp_path / "query")).start()
    signs = QuerySigns(query, 0)
    try:
        until(lambda: query.status["message"] == "Waiting for data to arrive", "its first trigger is over")
        idle = {signs.newest()}
        until(lambda: None in idle or len(idle) > 2 or idle.add(signs.newest()), "an idle one gives other signs")
        hangs.touch()
        until(entered(hangs).exists, "it hangs")
        until(lambda: signs.newest() == signs.newest(), "it has been asked since")
        stuck = set(asked(signs.newest, 10))
        assert len(stuck) == 1
        assert None not in stuck
        hangs.unlink()
        until(lambda: set(asked(signs.newest, 1)) != stuck, "it goes on")
    finally:
        hangs.unlink(missing_ok=True)
        query.stop()
    assert signs.newest() is None


def test_a_moment_before_its_last_vain_look_is_known_and_stands_still_while_it_hangs_or_finds_something(
    session: SparkSession, tmp_path: Path
) -> None:
    folder, batches, go_on = tmp_path / "in", [0], threading.Event()
    folder.mkdir()

    def on_batch(frame: Any, number: int) -> None:
        batches[0] += 1
        go_on.wait(60)

    stream = session.readStream.text(str(folder)).writeStream.foreachBatch(on_batch)
    stream = stream.option("checkpointLocation", str(tmp_path / "query")).trigger(processingTime="100 milliseconds")
    query = stream.start()
    signs = QuerySigns(query, 100)

    def looked_ms() -> int | None:
        return signs.looked_ms(lambda: batches[0])

    try:
        began = clock.steady_ms()
        assert looked_ms() is None, "it has not looked since it was asked for the first time"
        until(lambda: (looked_ms() or 0) > began, "it looks in vain")
        (folder / "one.txt").write_text("a record")
        came = clock.steady_ms()
        until(lambda: batches[0], "it has found it")
        while_found = {looked_ms() for _ in range(20)}
        assert len(while_found) == 1
        assert all(moment is not None and moment < came for moment in while_found)
        go_on.set()
        until(lambda: (looked_ms() or 0) > came, "it looks in vain once more")
    finally:
        go_on.set()
        query.stop()


def test_a_query_that_waits_for_its_next_trigger_far_longer_than_its_pause_gives_the_same_sign(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a clock that was set back: Spark waits for a moment of the wall clock."""
    monkeypatch.setattr(query_signs, "_LATE_MS", 300)
    (tmp_path / "in").mkdir()
    stream = session.readStream.text(str(tmp_path / "in")).writeStream.foreachBatch(lambda frame, number: None)
    stream = stream.option("checkpointLocation", str(tmp_path / "query")).trigger(processingTime=NEVER)
    query = stream.start()
    late, patient = QuerySigns(query, 100), QuerySigns(query, 3_600_000)
    try:
        until(lambda: query.status["message"] == "Waiting for next trigger", "its first trigger is over")
        assert late.newest() is None
        until(lambda: late.newest() is not None, "it waits for too long")
        assert len(set(asked(late.newest, 10))) == 1
        assert patient.newest() is None
    finally:
        query.stop()
    assert late.newest() is None
