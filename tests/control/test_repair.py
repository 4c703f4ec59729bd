"""A log that cannot be read: it is told with what still runs, that can be ended, and there is a way on."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import LogDamaged, StreamNotRunning, StreamRunning
from headgate_contract.heartbeats import ProcessIdentity, StreamState
from headgate_contract.ids import CheckpointId, SlotNumber, VertexUid
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.process import identify
from headgate_contract.records import GenerationStarted, Hole, Repaired, slot_log
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.snapshot import CommittableGroup
from headgate_control import Condition, catalogues, repairing
from headgate_control.deploy import Checker
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of, wait_gone
from headgate_control.sinks_seen import SinkSeen
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

PATHS = StreamPaths(STREAM)
ELSEWHERE = ProcessIdentity("far-away", "boot", 4711, "ticks:1")


def slot_file(world: World, number: int) -> Path:
    return world.root / numbered(PATHS.slots, SlotNumber(number))


def three_snapshots(world: World) -> None:
    """Slots: 1 start, 2-4 checkpoints 1 to 3. Its driver is gone."""
    world.deployed()
    world.started()
    for _ in range(3):
        world.snapshot()
    world.beat(StreamState.FAILED, cause="it broke")


def flip(path: Path, bits: int = 2) -> None:
    """Flip as many bits: one alone could be flipped back."""
    data = bytearray(path.read_bytes())
    for at in range(bits):
        data[40 + 7 * at] ^= 1
    path.write_bytes(data)


class TestPlan:
    def test_a_whole_log_needs_no_repair(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        result = cli("repair", "orders")
        assert (result.code, "nothing to repair, its log is whole" in result.out) == (0, True)
        assert cli("repair", "orders", "--execute").code == 0
        assert world.catalogue().newest_slot == 4

    def test_a_plan_changes_nothing_and_says_what_is_kept_and_what_is_given_up(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        flip(slot_file(world, 3))
        before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
        result = cli("repair", "orders")
        assert result.code == 6
        assert "slot 3 (damaged): streams/orders/slots/00000003.json is damaged: its checksum is" in result.out
        assert "-> given up: a hole" in result.out
        assert "checkpoint 3 of generation 1: good" in result.out
        assert "checkpoint 1 of generation 1: good" in result.out
        assert "checkpoint 2" not in result.out
        assert "`headgate repair orders --execute` carries it out" in result.out
        plain = cli("repair", "orders", "--json")
        assert plain.code == 6
        assert [kept["snapshot"]["id"] for kept in plain.json["kept"]] == [3, 1]
        assert (plain.json["needed"], plain.json["executed"]) == (True, False)
        assert {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()} == before

    def test_one_flipped_bit_costs_nothing(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        own = slot_file(world, 3).read_bytes()
        flip(slot_file(world, 3), bits=1)
        assert "-> its own bytes, which the checksum proves" in cli("repair", "orders").out
        assert cli("repair", "orders", "--execute").code == 0
        assert slot_file(world, 3).read_bytes() == own
        assert [ref.id for ref in world.catalogue().snapshots] == [3, 2, 1]

    def test_a_stream_of_which_nothing_is_there_is_unknown(self, world: World, cli: Cli) -> None:
        assert cli("repair", "orders").code == 3


class TestCarriedOut:
    def test_what_is_behind_a_hole_is_restored_and_nothing_is_deleted(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        slot_file(world, 3).write_bytes(b"")
        done = cli("repair", "orders", "--execute", "--by", "anna", "--json")
        assert done.code == 0, done.all
        assert (world.root / done.json["aside"] / "slots/00000003.json").read_bytes() == b""
        catalogue = world.catalogue()
        assert isinstance(catalogue.slots[2].record, Hole)
        assert isinstance(catalogue.slots[4].record, Repaired)
        assert (catalogue.next_generation, catalogue.next_checkpoint) == (2, 5)
        status = world.control().status(STREAM)
        assert status.condition is Condition.STOPPED
        assert "ended with a repair of its log by anna" in status.text
        assert "repair EXECUTED by anna" in cli("history", "orders").out
        explained = world.control().explain(STREAM)
        assert isinstance(explained.decision, RestoreFrom)
        assert explained.decision.snapshot.id == 3
        assert cli("repair", "orders").code == 0, "once is enough"

    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    def test_whichever_slot_is_gone_a_start_goes_on_from_the_newest_that_is_left(
        self, world: World, number: int
    ) -> None:
        three_snapshots(world)
        slot_file(world, number).unlink()
        if number < 4:
            with pytest.raises(LogDamaged, match="`headgate repair orders` tells a way out"):
                world.control().start(STREAM)
            world.control().repair(STREAM, execute=True)
        launched = world.control().start(STREAM)
        assert isinstance(launched.decision, RestoreFrom)
        assert launched.decision.snapshot.id == (2 if number == 4 else 3)
        assert launched.generation == 2

    def test_a_frozen_driver_finds_its_next_slot_taken(self, world: World) -> None:
        three_snapshots(world)
        frozen = slot_log(world.store, STREAM)
        frozen.read()
        slot_file(world, 2).unlink()
        world.control().repair(STREAM, execute=True)
        for after in (1, 4):
            taken = frozen.store.read(numbered(PATHS.slots, SlotNumber(after + 1)))
            assert not frozen.store.create(numbered(PATHS.slots, SlotNumber(after + 1)), b"frozen")
            assert frozen.store.read(numbered(PATHS.slots, SlotNumber(after + 1))) == taken

    def test_a_lost_deployment_comes_back_from_its_copy(self, world: World, cli: Cli) -> None:
        cli("deploy", "orders", "job.py")
        path = world.root / numbered(PATHS.decisions, SlotNumber(1))
        own = world.catalogue().deployed
        path.write_bytes(b"torn")
        assert cli("start", "orders").code == 6
        assert cli("repair", "orders", "--execute").code == 0
        assert world.catalogue().deployed == own

    def test_without_any_deployment_left_it_says_what_is_to_be_done(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        (world.root / numbered(PATHS.decisions, SlotNumber(1))).write_bytes(b"torn")
        assert "no deployment is left: `headgate deploy orders JOB`" in cli("repair", "orders", "--execute").out
        assert cli("deploy", "orders", "job.py").code == 0
        assert [ref.id for ref in world.catalogue().snapshots] == [3, 2, 1]

    def test_a_log_that_is_gone_goes_on_above_what_folders_and_heartbeats_tell_of(self, world: World) -> None:
        three_snapshots(world)
        world.beat(StreamState.FAILED, generation=7)
        for number in (1, 2, 3, 4):
            slot_file(world, number).unlink()
        world.control().repair(STREAM, execute=True)
        catalogue = world.catalogue()
        assert (catalogue.next_generation, catalogue.next_checkpoint) == (8, 4)

    def test_a_copy_that_an_editor_has_saved_is_put_back_as_it_was(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        own = slot_file(world, 2).read_bytes()
        slot_file(world, 2).write_bytes(own.replace(b",", b",\n  "))
        assert "was laid out anew, by an editor" in cli("start", "orders").all
        assert cli("repair", "orders", "--execute").code == 0
        assert slot_file(world, 2).read_bytes() == own

    def test_files_that_are_no_slots_are_left_alone(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        for name in ("notes.txt", "00000003.json~", "99999999.json"):
            (world.root / PATHS.slots / name).write_text("hello")
        result = cli("repair", "orders", "--execute")
        assert result.code == 0, result.all
        assert (world.root / PATHS.slots / "notes.txt").read_text() == "hello"
        assert world.catalogue().newest_slot == 5
        assert list(world.root.glob("streams/orders/repaired/*/slots/*")) == [
            next(world.root.glob("streams/orders/repaired/*/slots/99999999.json"))
        ], "no entry, and in the way of all readers"


def test_who_has_read_a_log_that_contradicts_itself_sees_that_somebody_else_has_repaired_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor, or Airflow's triggerer, reads each entry once: what it remembers is not there any more."""
    three_snapshots(world)
    own = slot_file(world, 4).read_bytes()
    slot_file(world, 4).unlink()
    world.stopped()
    world.started()  # a generation that went on in a copy of the root, and the slots behind it
    slot_file(world, 4).write_bytes(own)
    watcher = world.control()
    assert watcher.status(STREAM).condition is Condition.UNREADABLE
    world.control().repair(STREAM, execute=True)
    monkeypatch.setattr(catalogues, "_READ_ANEW_S", 0.0)
    assert watcher.status(STREAM).condition is Condition.STOPPED


class TestDown:
    def test_a_stream_that_runs_here_is_not_repaired(self, world: World) -> None:
        three_snapshots(world)
        world.beat(process=identify())
        flip(slot_file(world, 2))
        with pytest.raises(StreamRunning, match=r"may be running: generation 1 \(pid .*`headgate cancel orders`"):
            world.control().repair(STREAM, execute=True)
        assert world.control().repair(STREAM).needed

    def test_one_that_was_heard_of_elsewhere_a_moment_ago_is_not_either(self, world: World) -> None:
        three_snapshots(world)
        world.beat(process=ELSEWHERE, age_s=-60)  # a moment ago, for as long as this takes
        flip(slot_file(world, 2))
        with pytest.raises(StreamRunning, match="far-away"):
            world.control().repair(STREAM, execute=True)

    def test_one_that_is_silent_for_longer_than_allowed_is(self, world: World) -> None:
        three_snapshots(world)
        world.beat(process=ELSEWHERE, age_s=60)
        flip(slot_file(world, 2))
        assert world.control().repair(STREAM, execute=True).executed


class TestUnread:
    def test_status_tells_what_still_runs_and_hides_no_other_stream(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        world.beat(process=identify())
        flip(slot_file(world, 2))
        world.deployed(stream=type(STREAM)("other"))
        status = world.control().status(STREAM)
        assert status.condition is Condition.UNREADABLE
        assert "its checksum is that of other bytes" in status.text
        assert re.search(r"is running, last heard of \d+ s ago", status.text)
        assert "`headgate repair orders` tells a way out" in status.text
        assert (status.generation, status.process_sign) == (1, ProcessSign.ALIVE)
        assert "never-started" in cli("status").out

    @pytest.mark.e2e
    @pytest.mark.parametrize("verb", ["stop", "cancel"])
    def test_a_driver_that_runs_is_ended_by_its_mailbox(self, world: World, cli: Cli, verb: str) -> None:
        world.deployed()
        launched = world.control().start(STREAM)
        world.snapshot()
        flip(slot_file(world, 1))
        result = cli(verb, "orders")
        assert result.code == 0, result.all
        assert "`headgate repair orders` tells a way out" in result.all
        assert sign_of(launched.process) is ProcessSign.GONE
        assert cli("repair", "orders", "--execute").code == 0

    @pytest.mark.e2e
    def test_one_that_is_deaf_is_killed_by_a_cancel(self, world: World) -> None:
        world.write_job("MODE = 'deaf'")
        world.deployed()
        launched = world.control().start(STREAM)
        flip(slot_file(world, 1))
        asked = world.control().cancel(STREAM, timeout_s=0.3)
        assert "is gone" in asked.note
        assert wait_gone(launched.process, 60)

    def test_nobody_is_left_to_stop(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        flip(slot_file(world, 2))
        result = cli("cancel", "orders")
        assert result.code == 0
        assert "nothing to stop: generation 1 is failed" in result.out
        with pytest.raises(StreamNotRunning, match="no savepoint was taken"):
            world.control().stop(STREAM, savepoint=True)

    @pytest.mark.e2e
    def test_a_fresh_start_repairs_first_and_leaves_what_can_be_restored(self, world: World) -> None:
        three_snapshots(world)
        flip(slot_file(world, 3))
        launched = world.control().start(STREAM, fresh=True)
        assert isinstance(launched.decision, StartFresh)
        assert "the log was repaired first" in launched.warnings[0]
        assert "2 snapshots can still be restored: `headgate snapshots orders`" in launched.warnings[0]
        assert [ref.id for ref in world.control().snapshots(STREAM)] == [3, 1]
        world.control().cancel(STREAM)
        restored = world.control().restore(STREAM, snapshot=CheckpointId(3))
        assert isinstance(restored.decision, RestoreFrom)

    def test_a_fresh_start_does_not_repair_what_runs(self, world: World) -> None:
        three_snapshots(world)
        world.beat(process=identify())
        flip(slot_file(world, 3))
        with pytest.raises(StreamRunning):
            world.control().start(STREAM, fresh=True)


class TestSinks:
    def test_groups_that_the_log_does_not_tell_of_are_told_and_the_ids_go_on_above_them(
        self, world: World, cli: Cli
    ) -> None:
        """What a driver in a copy of the root has left in the output folder."""
        world.write_job(
            "HOLDINGS = {'out': {'history': 'launch1', 'generation': 5, 'groups': {3: ['a'], 7: ['b'], 8: ['c']}}}"
        )
        three_snapshots(world)
        result = cli("repair", "orders")
        assert result.code == 6
        assert "groups of which the log does not tell are published: 7-8" in result.out
        assert "generation 5 has begun to write there" in result.out
        assert cli("repair", "orders", "--execute").code == 0
        catalogue = world.catalogue()
        assert (catalogue.next_generation, catalogue.next_checkpoint) == (6, 9)
        assert [ref.id for ref in catalogue.snapshots] == [3, 2, 1], "nothing is given up"
        assert cli("repair", "orders").code == 0, "what was dealt with is not told again"

    def test_what_a_driver_publishes_while_the_sinks_are_looked_at_is_no_damage(
        self, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        three_snapshots(world)
        looked = repairing.sinks_seen

        def looked_at_while_it_runs(checker: Checker, catalogue: Catalogue, *flags: str) -> tuple[SinkSeen, ...]:
            world.snapshot()
            world.write_job("HOLDINGS = {'out': {'generation': 1, 'groups': {3: ['a'], 4: ['b']}}}")
            return looked(checker, catalogue, *flags)

        monkeypatch.setattr(repairing, "sinks_seen", looked_at_while_it_runs)
        result = cli("repair", "orders")
        assert result.code == 0, result.all
        assert "2 newest groups, and the log tells of all there are" in result.out

    def test_what_was_taken_back_is_no_damage_unless_its_ids_come_next(self, world: World, cli: Cli) -> None:
        """What a driver in a copy of the root has left in the output folder, behind a start that hid it."""
        world.write_job("HOLDINGS = {'out': {'groups': {3: ['a'], 7: ['b'], 8: ['c']}, 'hidden': [7, 8]}}")
        three_snapshots(world)
        result = cli("repair", "orders")
        assert (result.code, "ids that come next are taken by groups" in result.out) == (6, True), result.all
        world.started(first_checkpoint=9)
        result = cli("repair", "orders")
        assert (result.code, "1 newest group, and the log tells of all there are; 2 were taken back" in result.out) == (
            0,
            True,
        ), result.all

    def test_groups_that_were_published_and_are_gone_are_told_with_the_way_to_publish_them_again(
        self, world: World, cli: Cli
    ) -> None:
        """What was published since is lost: an older copy was put in the output folder's place."""
        world.sink_paths = {"out": "/data/out"}
        world.write_job("HOLDINGS = {'out': {'groups': {1: ['a']}}}")
        world.deployed()
        world.started()
        for published in (None, 1, 2):
            out = {VertexUid("out"): CheckpointId(published)} if published else {}
            world.snapshot(published=out)
        world.stopped()
        told = "group 2, which was published, is gone, and so is whatever was published behind group 1"
        result = cli("repair", "orders")
        assert (result.code, told in result.all) == (6, True), result.all
        assert "`headgate restore orders --from 2` publishes those records again" in result.all
        result = cli("explain", "orders")
        assert (result.code, f"{told}: a start is refused" in result.all) == (6, True), result.all
        assert cli("explain", "orders", "--from", "2").code == 0
        assert cli("explain", "orders", "--fresh").code == 0
        assert cli("repair", "orders", "--execute").code == 0
        assert [cli(verb, "orders").code for verb in ("repair", "explain")] == [0, 0], "it was given up"

    def test_of_a_sink_that_keeps_nothing_which_could_tell_no_group_is_called_gone(
        self, world: World, cli: Cli
    ) -> None:
        world.sink_paths = {"out": "/data/out"}
        world.write_job("HOLDINGS = {'out': {}}")
        world.deployed()
        world.started()
        for published in (None, 1, 2):
            world.snapshot(published={VertexUid("out"): CheckpointId(published)} if published else {})
        world.stopped()
        assert [cli(verb, "orders").code for verb in ("repair", "explain")] == [0, 0]

    def test_a_renamed_sink_is_looked_at_under_its_first_name_and_told_of_by_its_own(
        self, world: World, cli: Cli
    ) -> None:
        world.write_job("HOLDINGS = {'out': {'groups': {1: ['a']}}}")
        deployed = world.deployed()
        world.started()
        world.snapshot()
        sinks = {"main": {"kind": "files", "rollback": "retract", "path": "/data/out"}}
        vertices = [{"uid": "main", "kind": "sink", "former_uids": ["out"]}]
        world.decide(replace(deployed, plan={"sinks": sinks, "vertices": vertices}))
        world.started()
        for published in (1, 2):
            world.snapshot(published={VertexUid("main"): CheckpointId(published)})
        world.stopped()
        told = "sink main: group 2, which was published, is gone"
        for verb in ("repair", "explain"):
            result = cli(verb, "orders")
            assert (result.code, told in result.all) == (6, True), result.all

    def test_groups_that_are_yet_to_be_published_and_of_which_files_are_gone_are_told(
        self, world: World, cli: Cli
    ) -> None:
        world.sink_paths = {"out": "/data/out"}
        world.deployed()
        world.started()
        handles = ({"staged": "staged/a"}, {"staged": "staged/b"})
        world.snapshot(committed=False, committables=(CommittableGroup(CheckpointId(1), {VertexUid("out"): handles}),))
        world.stopped()
        for staged, code in ((["staged/a", "staged/b"], 0), (["staged/a"], 6)):
            world.write_job(f"HOLDINGS = {{'out': {{'groups': {{}}, 'staged': {staged}}}}}")
            result = cli("repair", "orders")
            assert (result.code, "files of group 1, which are to be published, are gone" in result.all) == (
                code,
                code == 6,
            )

    def test_its_own_records_that_are_damaged_are_told_with_what_becomes_of_them(self, world: World, cli: Cli) -> None:
        fault = {"path": "lives/00000001.json", "why": "it is damaged", "becomes": "made again, from its files"}
        world.write_job(f"HOLDINGS = {{'out': {{'groups': {{3: ['a']}}, 'faults': [{fault}]}}}}")
        three_snapshots(world)
        told = "lives/00000001.json: it is damaged\n    -> made again, from its files"
        result = cli("repair", "orders")
        assert (result.code, told in result.out) == (6, True), result.all
        warned = (
            "its own records are damaged or gone: lives/00000001.json: a start is refused, `headgate repair orders`"
        )
        assert warned in cli("explain", "orders").all
        assert cli("repair", "orders", "--execute").code == 0
        result = cli("repair", "orders")
        assert (result.code, told in result.out) == (0, True), "the next start sees to it"
        assert len([slot for slot in world.catalogue().slots if isinstance(slot.record, Repaired)]) == 1

    def test_a_sink_that_cannot_be_looked_at_hinders_no_plan(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        world.write_job("HOLDINGS = {'out': {'error': 'PermissionError: denied'}}")
        flip(slot_file(world, 2))
        result = cli("repair", "orders")
        assert result.code == 6
        assert "sink out: it could not be looked at: PermissionError: denied" in result.out

    def test_the_history_that_sinks_know_outlives_the_first_slot(self, world: World) -> None:
        world.write_job("HOLDINGS = {'out': {'history': 'launch1', 'generation': 1, 'groups': {}}}")
        three_snapshots(world)
        slot_file(world, 1).unlink()
        world.control().repair(STREAM, execute=True)
        start = world.catalogue().slots[0].record
        assert isinstance(start, GenerationStarted)
        assert start.launch == "launch1"


class TestLyingThere:
    """The entry of the newest checkpoint is lost, and the checkpoint itself lies in its folder."""

    @pytest.mark.parametrize("how", ["emptied", "gone"])
    def test_at_one_retained_snapshot_the_state_is_not_given_up(self, world: World, cli: Cli, how: str) -> None:
        world.deployed()
        world.started()
        older = world.snapshot()
        newest = world.snapshot(retires=(older.id,))
        world.stopped()
        shutil.rmtree(world.root / older.folder)
        slot_file(world, 3).write_bytes(b"") if how == "emptied" else slot_file(world, 3).unlink()
        result = cli("repair", "orders", "--execute")
        assert f"-> written anew: snapshot-completed ({newest} is there, whole)" in result.out
        catalogue = world.catalogue()
        assert [ref.id for ref in catalogue.snapshots] == [newest.id], "the one that it retired is gone"
        explained = world.control().explain(STREAM)
        assert isinstance(explained.decision, RestoreFrom)
        assert explained.decision.snapshot == newest

    def test_one_of_which_a_file_is_gone_is_a_hole(self, world: World, cli: Cli) -> None:
        three_snapshots(world)
        slot_file(world, 4).write_bytes(b"")
        (world.root / PATHS.shared_file("positions-3-g1.bin")).unlink()
        assert "given up: a hole" in cli("repair", "orders").out

    def test_another_attempts_folder_is_not_taken_in_the_place_of_an_entry_between_others(
        self, world: World, cli: Cli
    ) -> None:
        three_snapshots(world)
        slot_file(world, 3).write_bytes(b"")
        assert "given up: a hole" in cli("repair", "orders").out
