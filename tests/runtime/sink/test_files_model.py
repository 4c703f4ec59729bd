"""Random lives of a stream against a model: what a plain reader sees is what the history says, after every step."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.sink.base import staged_names
from headgate.sink.files_committer import FilesCommitter
from headgate_contract.errors import Fenced
from headgate_contract.ids import CheckpointId
from tests.runtime.sink.stepping_store import KillAt, Killed
from tests.runtime.sink.world import CALM, World

KILLS = st.one_of(st.none(), st.integers(0, 40))


@dataclass(frozen=True)
class Snapshot:
    """What a completed checkpoint stands on, and which groups it carries as not yet noted as committed."""

    lineage: frozenset[int]
    carried: tuple[int, ...]
    generation: int


class SinkLives(RuleBasedStateMachine):
    """One stream; its driver is killed anywhere, restored to anything, and old drivers wake up."""

    @initialize()
    def start(self) -> None:
        self.world = World(split_moves=True)
        self.generation = 0
        self.next_id = 1
        self.snapshots: dict[int, Snapshot] = {}
        self.retired: set[int] = set()
        self.base: int | None = None
        self.noted: set[int] = set()
        self.pending: list[int] = []
        self.zombies: list[tuple[FilesCommitter, list[int]]] = []
        self.running = False
        self._restart(None, [])

    @property
    def lineage(self) -> frozenset[int]:
        return self.snapshots[self.base].lineage if self.base is not None else frozenset()

    @precondition(lambda self: self.running)
    @rule(files=st.integers(0, 3))
    def complete_a_checkpoint(self, files: int) -> None:
        id = self.next_id
        self.next_id += 1
        self.world.complete(self.generation, id, files=files)
        carried = self.snapshots[self.base].carried if self.base is not None else ()
        still = tuple(group for group in carried if group not in self.noted)
        self.snapshots[id] = Snapshot(self.lineage | {id}, (*still, id), self.generation)
        self.base = id
        self.pending.append(id)

    @precondition(lambda self: self.running and self.pending)
    @rule(kill=KILLS)
    def commit_the_next_group(self, kill: int | None) -> None:
        group = self.pending[0]
        try:
            self.world.commit(self.generation, group, KillAt(kill))
        except Killed:
            self._die()
            return
        self.pending.pop(0)
        self.noted.add(group)

    @precondition(lambda self: self.running)
    @rule()
    def stage_for_a_checkpoint_that_never_completes(self) -> None:
        self.world.stage(self.generation, [10_000_000])

    @precondition(lambda self: self.running)
    @rule()
    def crash(self) -> None:
        self._die()

    @rule(kills=st.lists(st.integers(0, 60), max_size=2))
    def restart_from_the_newest(self, kills: list[int]) -> None:
        self._restart(self.base, kills)

    @precondition(lambda self: len(self._retained()) > 1)
    @rule(data=st.data(), kills=st.lists(st.integers(0, 60), max_size=2))
    def restore_to_a_named_snapshot(self, data: st.DataObject, kills: list[int]) -> None:
        self._restart(data.draw(st.sampled_from(self._retained())), kills)

    @rule(kills=st.lists(st.integers(0, 60), max_size=1))
    def start_fresh(self, kills: list[int]) -> None:
        self._restart(None, kills)

    @precondition(lambda self: len(self._retained()) > 2)
    @rule(data=st.data())
    def retire_a_snapshot(self, data: st.DataObject) -> None:
        candidates = [id for id in self._retained() if id != self.base]
        if candidates:
            self.retired.add(data.draw(st.sampled_from(candidates)))

    @precondition(lambda self: self.running and self.zombies)
    @rule(data=st.data())
    def an_old_driver_wakes_and_repeats_its_commits(self, data: st.DataObject) -> None:
        committer, groups = data.draw(st.sampled_from(self.zombies))
        for group in groups:
            try:
                committer.commit(CheckpointId(group), self.world.groups[group])
            except Fenced:
                assert group not in self.lineage
            else:
                assert group in self.lineage or not self.world.groups[group]

    @precondition(lambda self: self.running)
    @invariant()
    def a_plain_reader_sees_the_committed_groups_of_this_history(self) -> None:
        committed = [group for group in self.lineage if group not in self.pending]
        assert self.world.visible() == self.world.rows(*committed)

    def _retained(self) -> list[int]:
        return sorted(id for id in self.snapshots if id not in self.retired)

    def _die(self) -> None:
        own = [id for id, snapshot in self.snapshots.items() if snapshot.generation == self.generation]
        if own:
            self.zombies.append((self.world.committer(self.generation), own))
        self.running = False

    def _restart(self, base: int | None, kills: list[int]) -> None:
        if self.running:
            self._die()
        carried = self.snapshots[base].carried if base is not None else ()
        lineage = self.snapshots[base].lineage if base is not None else frozenset()
        branches = {group for id in self._retained() for group in self.snapshots[id].carried}
        for kill in [*kills, None]:
            self.generation += 1
            try:
                self.world.committer(self.generation, KillAt(kill)).begin(
                    frozenset(map(CheckpointId, lineage)),
                    [(CheckpointId(group), self.world.groups[group]) for group in carried],
                    [(CheckpointId(group), self.world.groups[group]) for group in sorted(branches - lineage)],
                    staged_names(handle for group in branches for handle in self.world.groups[group]),
                )
            except Killed:
                continue
        self.base, self.pending, self.running = base, [], True
        self.noted |= set(carried)
        assert {path for path in self.world.staged() if self._is_garbage(path)} == set()

    def _is_garbage(self, path: str) -> bool:
        return all(path != handle["staged"] for handles in self.world.groups.values() for handle in handles)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.forget()


TestSinkLives = SinkLives.TestCase
TestSinkLives.settings = settings(CALM, max_examples=20, stateful_step_count=25)
