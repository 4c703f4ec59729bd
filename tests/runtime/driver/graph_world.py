"""Whole lives of a job with channels: two inputs into one step, whose output is numbered by key behind a channel.

Left and right have ids of their own. `pair` counts for each key what it has had of both; `number` numbers what leaves
it. Both go to files, so what each step has had of every record can be told from outside.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headgate
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.step.operators import Keyed
from jobs.running_number import number
from tests.runtime.driver.life_world import NUMBERED, LifeWorld

PAIRED = pa.schema({"id": pa.int64(), "key": pa.int64(), "had": pa.int64()})
KEYS = 7
RIGHT = 1_000_000
"""Where the ids of the right input begin."""


def had(rows: pa.Table, keyed: Keyed, key: str) -> pa.Table:
    """For each record how many records of its key came to `pair` before it and with it."""
    stored = keyed.get("had").column("n").fill_null(0).to_numpy()
    places = keyed.positions()
    counts = stored[keyed.row_key] + places + 1
    after = stored.copy()
    for at in keyed.row_key:
        after[at] += 1
    keyed.put("had", pa.table({"n": pa.array(after, pa.int64())}))
    return pa.table({"id": rows.column("id"), "key": rows.column(key), "had": pa.array(counts, pa.int64())})


class GraphWorld(LifeWorld):
    """As LifeWorld; `written` counts both inputs."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.ids: dict[str, int] = {"left": 0, "right": RIGHT}
        self.slow_s = 0.0
        """How long `number` takes for each subtask's share of an element."""
        self.pair_s = 0.0
        """And `pair`."""
        self.fails_at = -1
        """The id at which `number` fails, `fails` times."""
        self.fails = 0
        self.failure: BaseException | None = None
        """What it fails with, if not with a ValueError."""
        self.says_last_words = False
        """In a drain `pair` says for each key that it has known it."""
        self.event_times: list[int | None] = []
        """How far event time had come, as each subtask of `number` was told with each element."""
        self.number_uid = "number"
        self.number_says_last_words = False
        """And `number`, likewise."""
        for side in self.ids:
            (base / side).mkdir()

    def write(self, files: int, rows: int = 20) -> None:
        """As many files on either side."""
        for side in self.ids:
            self.write_to(side, files, rows)

    def write_to(self, side: str, files: int, rows: int = 20) -> None:
        for _ in range(files):
            ids = range(self.ids[side], self.ids[side] + rows)
            self.ids[side] += rows
            self.written += rows
            key = "key" if side == "left" else "k"
            table = pa.table({"id": pa.array(ids, pa.int64()), key: pa.array([id % KEYS for id in ids], pa.int64())})
            temporary = self.base / f"{side}-{ids[0]:08d}.tmp"
            pq.write_table(table, temporary)
            temporary.rename(self.base / side / f"{ids[0]:08d}.parquet")

    def plan(self) -> GraphPlan:
        job = headgate.Job("pairs")
        left, right = (
            self.timed(
                job.source(
                    side,
                    headgate.sources.files(
                        str(self.base / side),
                        format="parquet",
                        schema=f"id BIGINT, {key} BIGINT",
                        max_files_per_trigger=1,
                        bounded=side in self.bounded,
                    ),
                )
            ).key_by(key)
            for side, key in (("left", "key"), ("right", "k"))
        )

        def from_left(rows: pa.Table, keyed: Keyed) -> pa.Table:
            time.sleep(self.pair_s)
            return had(rows, keyed, "key")

        def from_right(rows: pa.Table, keyed: Keyed) -> pa.Table:
            time.sleep(self.pair_s)
            return had(rows, keyed, "k")

        def last_words(keyed: Keyed) -> pa.Table:
            keys = keyed.keys.keys.column("key")
            count = len(keys)
            return pa.table(
                {"id": pa.array([-1] * count, pa.int64()), "key": keys, "had": pa.array([0] * count, pa.int64())}
            )

        paired = left.connect(right).process(
            "pair",
            from_left,
            from_right,
            output=PAIRED,
            state={"had": pa.schema({"n": pa.int64()})},
            finish=last_words if self.says_last_words else None,
        )
        paired.sink("pairs", headgate.sinks.files(self.base / "pairs"))

        def numbered(rows: pa.Table, keyed: Keyed) -> Any:
            time.sleep(self.slow_s)
            self.event_times.append(keyed.watermark_ms)
            if self.fails and self.fails_at in rows.column("id").to_pylist():
                self.fails -= 1
                raise self.failure or ValueError(f"{self.fails_at} is not good")
            return number(rows, keyed)

        def last_numbers(keyed: Keyed) -> pa.Table:
            keys = keyed.keys.keys.column("key")
            count = len(keys)
            return pa.table(
                {"id": pa.array([-2] * count, pa.int64()), "key": keys, "number": pa.array([0] * count, pa.int64())}
            )

        behind = paired.key_by("key").process(
            self.number_uid,
            numbered,
            output=NUMBERED,
            state={"count": pa.schema({"n": pa.int64()})},
            finish=last_numbers if self.number_says_last_words else None,
        )
        behind.sink("out", headgate.sinks.files(self.base / "out"))
        return graph_plan(job)

    def rows(self, folder: str) -> list[dict[str, int]]:
        """What a plain reader finds at a sink."""
        return [
            row for path in sorted((self.base / folder).glob("*.parquet")) for row in pq.read_table(path).to_pylist()
        ]

    def pairs(self) -> list[dict[str, int]]:
        return [
            row for path in sorted((self.base / "pairs").glob("*.parquet")) for row in pq.read_table(path).to_pylist()
        ]

    def check_output(self) -> None:
        """Every id once at both sinks, and each key's counts and numbers without a gap."""
        ids = sorted([*range(self.ids["left"]), *range(RIGHT, self.ids["right"])])
        for rows, counted in ((self.pairs(), "had"), (self.output(), "number")):
            assert sorted(row["id"] for row in rows) == ids, counted
            for key, count in Counter(id % KEYS for id in ids).items():
                assert sorted(row[counted] for row in rows if row["key"] == key) == list(range(1, count + 1)), counted


class RuledWorld(GraphWorld):
    """Left and right are merged, and go to files as they are; those of keys below a limit that is told are numbered."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.rules = 0
        (base / "rules").mkdir()

    def write_rule(self, limit: int) -> None:
        self.rules += 1
        self.written += 1
        temporary = self.base / f"rule-{self.rules}.tmp"
        pq.write_table(pa.table({"limit": pa.array([limit], pa.int64())}), temporary)
        temporary.rename(self.base / "rules" / f"{self.rules:08d}.parquet")

    def write_to(self, side: str, files: int, rows: int = 20) -> None:
        """Both sides have the same columns here."""
        for _ in range(files):
            ids = range(self.ids[side], self.ids[side] + rows)
            self.ids[side] += rows
            self.written += rows
            table = pa.table({"id": pa.array(ids, pa.int64()), "key": pa.array([id % KEYS for id in ids], pa.int64())})
            temporary = self.base / f"{side}-{ids[0]:08d}.tmp"
            pq.write_table(table, temporary)
            temporary.rename(self.base / side / f"{ids[0]:08d}.parquet")

    def plan(self) -> GraphPlan:
        def source(name: str, schema: str) -> headgate.Stream:
            files = headgate.sources.files(
                str(self.base / name), format="parquet", schema=schema, max_files_per_trigger=1
            )
            return job.source(name, files)

        def limited(rows: pa.Table, keyed: Keyed) -> pa.Table | None:
            limit = keyed.operator_state("limits").get("limit")
            if limit is None:
                return None
            chosen = rows.filter(pc.less(rows.column("key"), limit))
            return chosen.select(["id", "key"]) if chosen.num_rows else None

        def told(rows: pa.Table, keyed: Any) -> None:
            keyed.operator_state("limits").put("limit", rows.column("limit")[-1].as_py())

        job = headgate.Job("ruled")
        merged = source("left", "id BIGINT, key BIGINT").union(source("right", "id BIGINT, key BIGINT"))
        merged.sink("merged", headgate.sinks.files(self.base / "merged"))
        ruled = (
            merged.key_by("key")
            .connect(source("rules", "limit BIGINT").broadcast())
            .process(
                "limit",
                limited,
                told,
                output=pa.schema({"id": pa.int64(), "key": pa.int64()}),
                state={},
                operator_state={"limits": "broadcast"},
            )
        )
        numbered = ruled.key_by("key").process(
            "number", number, output=NUMBERED, state={"count": pa.schema({"n": pa.int64()})}
        )
        numbered.sink("out", headgate.sinks.files(self.base / "out"))
        return graph_plan(job)
