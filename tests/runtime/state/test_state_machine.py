"""Random histories of writes, seals, branches, attempts and rescales, against plain dicts.

Every version that ever was is kept and may be read or opened again at any time, so a parent that is touched shows.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from headgate.state.base import (
    RestoredPiece,
    StateBackend,
    StateDescriptor,
    StateSession,
    StateVersion,
    collect_garbage,
)
from headgate.state.hashmap import HashMapBackend
from headgate.state.key_groups import subtask_range
from headgate.state.merging import SegmentPolicy
from headgate.state.rocksdb import RocksDBBackend
from tests.runtime.state.runs import memory_directory
from tests.runtime.state.samples import (
    KEYS,
    MAX_PARALLELISM,
    STATES,
    VALUES,
    Model,
    Row,
    batch_of,
    content,
    freeze,
    keys_of,
    owned,
    put_in_model,
    rows_of,
    values_of,
)

HASHES = 5
states = st.sampled_from(STATES)
picks = st.lists(st.integers(0, 10_000), max_size=25)
writes = st.lists(st.tuples(states, picks, st.integers(0, 5)), max_size=6)


@dataclass(frozen=True)
class Branch:
    """A vertex at some moment: the version of each subtask, and what they hold together."""

    versions: tuple[StateVersion, ...]
    models: dict[str, Model]


@dataclass(frozen=True)
class Attempt:
    """An open session on one subtask of a branch."""

    session: StateSession
    branch: Branch
    subtask: int
    models: dict[str, Model]

    def rows(self, state: StateDescriptor, picked: list[int]) -> list[Row]:
        """Some of the rows that the subtask owns, each once."""
        mine = owned(state, KEYS[state.name], self.session.key_groups, HASHES)
        return [mine[i] for i in sorted({pick % len(mine) for pick in picked})] if mine else []


class StateHistory(RuleBasedStateMachine):
    """The rules; a subclass names the backend."""

    backend: StateBackend

    branches: Bundle[Branch] = Bundle("branches")
    attempts: Bundle[Attempt] = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.backend = HashMapBackend()
        self.resources = ExitStack()
        self.directory = self.resources.enter_context(memory_directory(Path(tempfile.gettempdir())))
        self.number = 0
        self.all_branches: list[Branch] = []
        self.open_attempts: list[Attempt] = []

    def identity(self) -> str:
        self.number += 1
        return f"attempt-{self.number}"

    def keep(self, versions: tuple[StateVersion, ...], models: dict[str, Model]) -> Branch:
        travelled = tuple(StateVersion.from_json(json.loads(json.dumps(version.to_json()))) for version in versions)
        branch = Branch(travelled, {name: dict(model) for name, model in models.items()})
        self.all_branches.append(branch)
        return branch

    @initialize(target=branches, parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> Branch:
        ranges = [subtask_range(i, parallelism, MAX_PARALLELISM) for i in range(parallelism)]
        versions = [self.backend.empty(STATES, key_groups, MAX_PARALLELISM, self.identity()) for key_groups in ranges]
        return self.keep(tuple(versions), {state.name: {} for state in STATES})

    @rule(target=branches, pick=st.integers(0, 3), back=st.integers(0, 2), writes=writes)
    def steps(self, pick: int, back: int, writes: list[tuple[StateDescriptor, list[int], int]]) -> Branch:
        """Some steps on one of the newest versions, each from the version that the one before it sealed."""
        branch = self.all_branches[-1 - back % len(self.all_branches)]
        for state, picked, shift in writes:
            attempt = self.begin(branch, pick)
            if shift < 2:
                self.delete(attempt, state, picked)
            else:
                self.put(attempt, state, picked, shift)
            self.get(attempt, state, list(range(100)))
            branch = self.end(attempt)
        return branch

    @rule(target=attempts, branch=branches, pick=st.integers(0, 3))
    def open(self, branch: Branch, pick: int) -> Attempt:
        return self.begin(branch, pick)

    def begin(self, branch: Branch, pick: int) -> Attempt:
        subtask = pick % len(branch.versions)
        parent = branch.versions[subtask]
        session = self.backend.open(parent, STATES, parent.key_groups, MAX_PARALLELISM, self.directory, self.identity())
        attempt = Attempt(session, branch, subtask, {name: dict(model) for name, model in branch.models.items()})
        self.open_attempts.append(attempt)
        return attempt

    @rule(attempt=attempts, state=states, picked=picks, shift=st.integers(0, 5))
    def put(self, attempt: Attempt, state: StateDescriptor, picked: list[int], shift: int) -> None:
        rows = attempt.rows(state, picked)
        batch, rows = batch_of(state, rows, HASHES)
        values = [VALUES[state.name][(shift + i) % len(VALUES[state.name])] for i in range(len(rows))]
        attempt.session.table(state.name).put(batch, values_of(state, values))
        put_in_model(state, attempt.models[state.name], rows, values)

    @rule(attempt=attempts, state=states, picked=picks)
    def delete(self, attempt: Attempt, state: StateDescriptor, picked: list[int]) -> None:
        rows = attempt.rows(state, picked)
        attempt.session.table(state.name).delete(batch_of(state, rows, HASHES)[0])
        for row in rows:
            attempt.models[state.name].pop(freeze(row), None)

    @rule(attempt=attempts, state=states, picked=picks)
    def get(self, attempt: Attempt, state: StateDescriptor, picked: list[int]) -> None:
        batch, rows = batch_of(state, attempt.rows(state, picked), HASHES)
        values, found = attempt.session.table(state.name).get(batch)
        model = attempt.models[state.name]
        nothing = (None,) * len(state.value)
        assert found.tolist() == [freeze(row) in model for row in rows]
        assert rows_of(values) == [model.get(freeze(row), nothing) for row in rows]

    @rule(attempt=attempts, state=states)
    def entries(self, attempt: Attempt, state: StateDescriptor) -> None:
        width = len(state.key)
        keys = sorted({row[:width] for row in attempt.rows(state, list(range(100)))}, key=repr)
        batch, keys = keys_of(state, keys, HASHES)
        owners, table = attempt.session.table(state.name).entries(batch)
        assert [freeze(keys[owner]) for owner in owners] == [row[1 : width + 1] for row in rows_of(table)]
        mine = {freeze(key) for key in keys}
        expected = {row: value for row, value in attempt.models[state.name].items() if row[:width] in mine}
        values = len(state.value)
        assert {row[1:-values]: row[-values:] for row in rows_of(table)} == expected
        assert table.num_rows == len(expected)

    @rule(target=branches, attempt=consumes(attempts))
    def seal(self, attempt: Attempt) -> Branch:
        return self.end(attempt)

    def end(self, attempt: Attempt) -> Branch:
        self.open_attempts.remove(attempt)
        versions = list(attempt.branch.versions)
        versions[attempt.subtask] = attempt.session.seal()
        return self.keep(tuple(versions), attempt.models)

    @rule(attempt=consumes(attempts))
    def discard(self, attempt: Attempt) -> None:
        self.open_attempts.remove(attempt)
        attempt.session.discard()

    @rule(target=branches, branch=branches, parallelism=st.integers(1, 4))
    def rescale(self, branch: Branch, parallelism: int) -> Branch:
        pieces = [RestoredPiece(version, self.directory) for version in branch.versions]
        ranges = [subtask_range(i, parallelism, MAX_PARALLELISM) for i in range(parallelism)]
        versions = [
            self.backend.restore(pieces, STATES, key_groups, MAX_PARALLELISM, self.directory, self.identity())
            for key_groups in ranges
        ]
        return self.keep(tuple(versions), branch.models)

    @rule(branch=branches)
    def read(self, branch: Branch) -> None:
        held: dict[str, Model] = {state.name: {} for state in STATES}
        for version in branch.versions:
            with self.backend.open(
                version, STATES, version.key_groups, MAX_PARALLELISM, self.directory, self.identity()
            ) as session:
                for state in STATES:
                    table = session.table(state.name)
                    mine = content(state, table)
                    assert table.count() == len(mine)
                    assert not mine.keys() & held[state.name].keys()
                    held[state.name] |= mine
        assert held == branch.models

    @rule()
    def collect(self) -> None:
        live = [version for branch in self.all_branches for version in branch.versions]
        collect_garbage(self.directory, live, [attempt.session.identity for attempt in self.open_attempts])

    def teardown(self) -> None:
        for attempt in self.open_attempts:
            attempt.session.discard()
        self.resources.close()


class HashMapHistory(StateHistory):
    @initialize(fanout=st.integers(2, 4), smallest_tier=st.integers(1, 4), budget=st.integers(5, 50))
    def choose_policy(self, fanout: int, smallest_tier: int, budget: int) -> None:
        policy = SegmentPolicy(
            fanout=fanout, smallest_tier=smallest_tier, merge_budget=budget, merge_factor=1, scan_rows=5
        )
        self.backend = HashMapBackend(policy)


class RocksDBHistory(StateHistory):
    def __init__(self) -> None:
        super().__init__()
        self.backend = RocksDBBackend()


CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

TestHashMapHistory = HashMapHistory.TestCase
TestHashMapHistory.settings = settings(CALM, max_examples=25, stateful_step_count=30)
TestRocksDBHistory = RocksDBHistory.TestCase
TestRocksDBHistory.settings = settings(CALM, max_examples=10, stateful_step_count=20)
