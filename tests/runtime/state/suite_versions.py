"""What the versions of every state backend must be: immutable, independent, restorable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.state.base import (
    StateVersion,
    collect_garbage,
    local_files,
)
from headgate.state.errors import (
    RestoreGap,
    SessionClosed,
)
from headgate.state.key_groups import subtask_range
from tests.runtime.state.runs import HASHES, Run, memory_directory
from tests.runtime.state.samples import (
    COUNTS,
    KEYS,
    MAX_PARALLELISM,
    RECENT,
    STATES,
    TOTALS,
    VALUES,
    WHOLE,
    Model,
    batch_of,
    content,
    freeze,
    owned,
)


class VersionSentences:
    """Parents, attempts, restore and files."""

    def test_a_version_survives_json(self, run: Run) -> None:
        version = run.write(None, TOTALS, KEYS["totals"], [VALUES["totals"][1]] * len(KEYS["totals"]))
        again = StateVersion.from_json(json.loads(json.dumps(version.to_json())))
        assert again == version
        assert run.read(again, TOTALS) == run.read(version, TOTALS)

    def test_a_parent_is_never_touched(self, run: Run, directory: Path) -> None:
        """What is written after a snapshot is not in it, and its files keep every byte."""
        parent = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        before = {file.path: file.path.read_bytes() for file in local_files(parent, directory)}
        child = parent
        for number in range(6):
            child = run.write(child, COUNTS, [("a",), (f"more {number}",)], [(100 + number, None), (0, None)])
        assert {file.path: file.path.read_bytes() for file in local_files(parent, directory)} == before
        assert run.read(parent, COUNTS)[("a",)] == (2, None)
        assert run.read(child, COUNTS)[("a",)] == (105, None)

    def test_two_attempts_from_one_parent_do_not_see_each_other(self, run: Run, directory: Path) -> None:
        parent = run.write(None, COUNTS, [("a",), ("b",)], [(1, None), (2, None)])
        with run.open(parent, identity="attempt 0") as zombie, run.open(parent, identity="attempt 1") as winner:
            run.put(zombie, COUNTS, [("a",)], [(10, None)])
            run.put(winner, COUNTS, [("a",)], [(11, None)])
            assert content(COUNTS, zombie.table("counts"))[("a",)] == (10, None)
            won = winner.seal()
            run.put(zombie, COUNTS, [("b",)], [(20, None)])
            lost = zombie.seal()
        shared = {file.name for file in parent.files}
        assert not {file.name for file in won.files} & {file.name for file in lost.files} - shared
        assert run.read(won, COUNTS) == {("a",): (11, None), ("b",): (2, None)}
        assert run.read(lost, COUNTS) == {("a",): (10, None), ("b",): (20, None)}
        collect_garbage(directory, [won])
        assert run.read(won, COUNTS) == {("a",): (11, None), ("b",): (2, None)}

    def test_the_same_attempt_twice_makes_files_of_other_names(self, run: Run) -> None:
        versions = [run.write(None, COUNTS, [("a",)], [(n, None)], identity="one") for n in (1, 2)]
        names = [{file.name for file in version.files} for version in versions]
        assert not names[0] & names[1]
        assert [run.read(version, COUNTS)[("a",)][0] for version in versions] == [1, 2]

    def test_a_session_that_wrote_nothing_keeps_its_parents_files(self, run: Run, directory: Path) -> None:
        parent = run.write(None, COUNTS, [("a",)], [(1, None)])
        before = sorted(path.name for path in directory.iterdir())
        with run.open(parent, identity="idle") as session:
            session.table("counts").get(batch_of(COUNTS, [("a",)], HASHES)[0])
            child = session.seal()
        assert (child.files, child.identity) == (parent.files, "idle")
        assert sorted(path.name for path in directory.iterdir()) == before

    def test_empty_state_has_no_files_and_restores(self, run: Run, directory: Path) -> None:
        """F100: an empty state's snapshot is empty and restores fine."""
        with run.open(None) as session:
            session.table("counts").count()
            version = session.seal()
        assert version.files == ()
        restored = run.restore([version], WHOLE)
        assert run.read(restored, COUNTS) == {}
        assert run.read(run.restore([], WHOLE), COUNTS) == {}
        assert list(directory.iterdir()) == []

    def test_state_that_nobody_touched_or_declared_is_in_the_next_version(self, run: Run) -> None:
        """F99: state restored but not touched since is still in the next snapshot."""
        both = run.write(None, COUNTS, [("a",)], [(1, None)])
        both = run.write(both, RECENT, [(True, 1)], [([],)])
        with run.open(both, [COUNTS]) as session:
            run.put(session, COUNTS, [("b",)], [(2, None)])
            child = session.seal()
        assert run.read(child, RECENT) == {(True, 1): ((),)}
        assert len(run.read(child, COUNTS)) == 2

    def test_a_discarded_session_leaves_nothing_behind(self, run: Run, directory: Path) -> None:
        """F77: dispose leaves only the root folder."""
        parent = run.write(None, COUNTS, [("a",)], [(1, None)])
        before = sorted(path.name for path in directory.iterdir())
        session = run.open(parent)
        run.put(session, COUNTS, [("b",)], [(2, None)])
        session.discard()
        session.discard()
        with run.open(parent) as session:  # left without a seal, as by an exception
            run.put(session, COUNTS, [("b",)], [(2, None)])
        assert sorted(path.name for path in directory.iterdir()) == before

    def test_a_closed_session_is_closed(self, run: Run) -> None:
        session = run.open(None, identity="s")
        table = session.table("counts")
        session.seal()
        batch, _ = batch_of(COUNTS, [("a",)], HASHES)
        for use in (session.seal, lambda: session.table("counts"), lambda: table.get(batch), table.scan, table.count):
            with pytest.raises(SessionClosed, match="sealed"):
                use()

    def test_restore_into_another_directory_reads_the_same(self, run: Run, tmp_path: Path) -> None:
        """Snapshot, mutate, restore: the snapshot's values come back (F89)."""
        first = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        run.write(first, COUNTS, KEYS["counts"], [(-i - 1, None) for i in range(11)])
        elsewhere = Run(run.backend, tmp_path / "elsewhere")
        elsewhere.directory.mkdir()
        restored = elsewhere.restore([first], WHOLE, fetched=run.directory)
        assert elsewhere.read(restored, COUNTS) == run.read(first, COUNTS)
        child = elsewhere.write(restored, COUNTS, [("a",)], [(99, None)])
        assert elsewhere.read(child, COUNTS)[("a",)] == (99, None)
        assert run.read(first, COUNTS)[("a",)] == (2, None)

    def test_restore_between_file_systems_copies(self, run: Run, tmp_path: Path) -> None:
        """Hard links cannot go from one file system to another (where memory is not one, this is a restore by link)."""
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        with memory_directory(tmp_path) as memory:
            there = Run(run.backend, memory)
            copied = there.restore([version], WHOLE, fetched=run.directory)
            assert there.read(copied, COUNTS) == run.read(version, COUNTS)
            back = Run(run.backend, tmp_path / "back")
            back.directory.mkdir()
            assert back.read(back.restore([copied], WHOLE, fetched=memory), COUNTS) == run.read(version, COUNTS)

    @pytest.mark.parametrize("parallelisms", [(1, 3, 2), (5, 2, 3)], ids=str)
    def test_rescaled_subtasks_hold_exactly_their_key_groups(self, run: Run, parallelisms: tuple[int, ...]) -> None:
        """F78, F94, F95: each subtask sees its range only, and all values match, with ranges of uneven size."""
        model: dict[str, Model] = {state.name: {} for state in STATES}
        versions: Sequence[StateVersion] = []
        for step, parallelism in enumerate(parallelisms):
            ranges = [subtask_range(i, parallelism, MAX_PARALLELISM) for i in range(parallelism)]
            versions = [run.restore(versions, key_groups) for key_groups in ranges]
            versions = [
                run.write_shares(version, key_groups, step, model)
                for version, key_groups in zip(versions, ranges, strict=True)
            ]
            for state in STATES:
                for version, key_groups in zip(versions, ranges, strict=True):
                    mine = {freeze(row) for row in owned(state, KEYS[state.name], key_groups, HASHES)}
                    expected = {row: value for row, value in model[state.name].items() if row in mine}
                    assert run.read(version, state) == expected

    def test_old_subtasks_may_have_known_different_states(self, run: Run) -> None:
        """F94: also when backends registered different states at run time."""
        ranges = [subtask_range(i, 2, MAX_PARALLELISM) for i in range(2)]
        pieces = []
        for key_groups, state in zip(ranges, (COUNTS, RECENT), strict=True):
            with run.open(run.backend.empty((), key_groups, MAX_PARALLELISM, "e"), [state]) as session:
                mine = owned(state, KEYS[state.name], key_groups, HASHES)
                assert mine
                run.put(session, state, mine, [VALUES[state.name][1]] * len(mine))
                pieces.append(session.seal())
        whole = run.restore(pieces, WHOLE, [COUNTS])
        assert {state.name for state in whole.descriptors} == {"counts", "recent"}
        assert len(run.read(whole, COUNTS)) == len(owned(COUNTS, KEYS["counts"], ranges[0], HASHES))
        assert len(run.read(whole, RECENT)) == len(owned(RECENT, KEYS["recent"], ranges[1], HASHES))

    def test_pieces_that_do_not_cover_the_key_groups_once_are_refused(self, run: Run) -> None:
        low, high = (
            run.backend.empty((), subtask_range(i, 2, MAX_PARALLELISM), MAX_PARALLELISM, "e") for i in range(2)
        )
        for pieces in ([low], [high], [low, low, high]):
            with pytest.raises(RestoreGap, match=r"0\.\.15"):
                run.restore(pieces, WHOLE)
        assert run.restore([high, low], WHOLE).key_groups == WHOLE

    def test_garbage_is_what_no_live_version_and_no_running_attempt_names(self, run: Run, directory: Path) -> None:
        old = run.write(None, COUNTS, [("a",)], [(1, None)], identity="g1-old")
        live = run.write(None, COUNTS, [("b",)], [(2, None)], identity="g1-live")
        unacked = run.write(live, COUNTS, [("c",)], [(3, None)], identity="g1-live-2")
        session = run.open(live, identity="g1-run")
        run.put(session, COUNTS, [("d",)], [(4, None)])
        deleted = collect_garbage(directory, [live], running=["g1-run", "g1-live-2"])
        assert sorted(deleted) == sorted({file.name for file in old.files})
        assert len(run.read(session.seal(), COUNTS)) == 2
        assert len(run.read(unacked, COUNTS)) == 2
        collect_garbage(directory, [unacked])
        assert {path.name for path in directory.iterdir()} == {file.name for file in local_files(unacked, directory)}

    def test_an_increment_is_the_files_that_the_last_version_lacks(self, run: Run, directory: Path) -> None:
        """A version shares what did not change with its parent, and names each file once."""
        base = run.write(None, COUNTS, [(f"k{i}",) for i in range(5000)], [(i, "x" * 20) for i in range(5000)])
        child = run.write(base, COUNTS, [("new",)], [(0, None)])
        have = {file.name for file in local_files(base, directory)}
        new = [file for file in local_files(child, directory) if file.name not in have]
        assert 0 < sum(file.length for file in new) < sum(file.length for file in local_files(child, directory)) / 4
        assert all(file.path.stat().st_size == file.length for file in local_files(child, directory))
