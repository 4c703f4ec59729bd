"""What is stored today stays what it is, byte for byte and bit for bit; docs/formats says what is in it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from headgate_contract import (
    heartbeats,
    history,
    id_ranges,
    mailbox,
    measures,
    operator_state,
    records,
    restore,
    root_store,
    snapshot,
    summary,
    wire,
)
from headgate_contract.errors import CorruptObject, OlderVersion
from headgate_contract.ids import SlotNumber
from headgate_contract.log import ExclusiveLog
from headgate_contract.paths import numbered
from headgate_contract.store import open_store
from tests.contract.store_suite import unique
from tests.contract.stored_values import FIXTURES, VALUES, fixture, place_of, resealed, stored
from tests.house_rules import REPO

DOCS = REPO / "docs" / "formats"
BODIES: dict[str, Any] = {
    "slot": records.SlotRecord,
    "decision": records.DecisionRecord,
    "request": mailbox.Request,
    "answer": mailbox.Answer,
    "heartbeat": heartbeats.Heartbeat,
    "event": history.Event,
    "snapshot": snapshot.SnapshotMetadata,
    "stream": records.StreamCopy,
    "root": root_store.RootIdentity,
    "summary": summary.Summary,
}
LOGS = ("slot", "decision")
STORE = open_store(f"memory://{unique()}")
OTHERS = {"manifest", "segment"}  # what sinks and sources put into the same envelope


def read(kind: str, data: bytes) -> object:
    """The value in a stored file, read as the code reads it."""
    if kind not in LOGS:
        return wire.decode(kind, data, BODIES[kind], kind, place_of(kind))
    return ExclusiveLog[Any](STORE, "log", kind, BODIES[kind]).decode(data, numbered("log", SlotNumber(1)))


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_fixture_is_read_to_what_it_was_written_from_and_written_to_the_same_bytes(name: str) -> None:
    kind, value = VALUES[name]
    data = fixture(name).read_bytes()
    assert read(kind, data) == value
    assert stored(kind, value) == data, "a format that changes gets a new version"


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("v*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_of_another_version_is_refused_by_name(path: Path) -> None:
    kind, version = path.stem.partition("-")[0], int(path.parent.name.removeprefix("v"))
    if version == wire.VERSIONS[kind]:
        return
    with pytest.raises(OlderVersion, match=rf"{kind} file of version {version}; this Headgate reads .*older Headgate"):
        read(kind, path.read_bytes())


def test_every_kind_of_file_and_of_record_has_a_fixture() -> None:
    assert set(BODIES) == set(wire.VERSIONS) - OTHERS
    written = {type(value) for _, value in VALUES.values()}
    for body in BODIES.values():
        assert set(typing.get_args(body)) or {body} <= written, f"{body} lacks a fixture"
    assert {path for path in FIXTURES.glob("v*/*") if path in set(map(fixture, VALUES))} == set(map(fixture, VALUES))


# ---- every byte counts


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_single_bit_flip_of_a_stored_file_is_refused_by_name(name: str) -> None:
    kind, value = VALUES[name]
    good = stored(kind, value)
    for at, bit in itertools.product(range(len(good)), range(8)):
        bad = bytearray(good)
        bad[at] ^= 1 << bit
        with pytest.raises(CorruptObject):
            read(kind, bytes(bad))


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_stored_file_that_is_cut_or_goes_on_is_refused_by_name(name: str) -> None:
    kind, value = VALUES[name]
    good = stored(kind, value)
    bad = [good[:length] for length in range(len(good))]
    bad += [good + tail for tail in (b"\0", b" ", b"\n", b"{}", good, b"\0" * 512)]
    bad += [b" " + good, b"\xef\xbb\xbf" + good, b"\0" * len(good)]
    for data in bad:
        with pytest.raises(CorruptObject):
            read(kind, data)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_file_that_an_editor_has_laid_out_anew_is_refused_and_told_so(name: str) -> None:
    kind, value = VALUES[name]
    good = stored(kind, value)
    plain = json.loads(good)
    layouts = [json.dumps(plain, indent=2), json.dumps(plain), good.decode("utf-8", "surrogateescape").rstrip()]
    for text in layouts:
        with pytest.raises(CorruptObject, match="laid out anew, by an editor"):
            read(kind, text.encode())
        assert wire.canonical(text.encode()) == good
    plain["body"] = {**plain["body"], "more": 1}
    changed = json.dumps(plain, indent=2).encode()
    with pytest.raises(CorruptObject, match="does not end in its checksum"):
        read(kind, changed)
    assert wire.canonical(changed) is None


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_file_that_lies_elsewhere_than_it_was_written_for_is_refused_by_name(name: str) -> None:
    kind, value = VALUES[name]
    elsewhere = resealed(stored(kind, value), b'{"at":"', b'{"at":"streams/other/')
    if kind == "snapshot":
        assert read(kind, stored(kind, value)) == value, "a savepoint may be moved"
    with pytest.raises(CorruptObject, match="is misplaced: it was written as 'streams/other/"):
        read(kind, elsewhere)


# ---- the pages

DOCUMENTED: dict[tuple[str, str], type] = {
    ("slot", "`generation-started`: a launch"): records.GenerationStarted,
    ("slot", "`snapshot-completed`: a checkpoint or savepoint"): records.SnapshotCompleted,
    ("slot", "`stopped`: the end of a generation in good order"): records.Stopped,
    ("slot", "`restarted`: the generation goes on after a failure"): records.Restarted,
    ("slot", "`hole`: here was an entry that is lost"): records.Hole,
    ("slot", "`repaired`: the end of a repair"): records.Repaired,
    ("slot", "reference"): snapshot.SnapshotRef,
    ("slot", "restore-from"): restore.RestoreFrom,
    ("slot", "start-fresh"): restore.StartFresh,
    ("slot", "rejected"): restore.Rejected,
    ("slot", "rollback"): restore.SinkRollback,
    ("slot", "span"): id_ranges.Span,
    ("decision", "`deployed`: a job file with settings, under a stream's name"): records.Deployed,
    ("decision", "`stop-wanted`: nobody is to restart this generation"): records.StopWanted,
    ("decision", "`stop-withdrawn`: its stop failed and it runs on"): records.StopWithdrawn,
    ("decision", "`retired`: these snapshots are no candidates any more"): records.Retired,
    ("decision", "`hole`: here was a decision that is lost"): records.Hole,
    ("snapshot", ""): snapshot.SnapshotMetadata,
    ("snapshot", "source"): snapshot.SourceState,
    ("snapshot", "vertex"): snapshot.VertexState,
    ("snapshot", "subtask"): snapshot.SubtaskState,
    ("snapshot", "operator state"): operator_state.OperatorState,
    ("snapshot", "task"): snapshot.TaskState,
    ("snapshot", "input"): snapshot.InputState,
    ("snapshot", "element"): snapshot.InFlight,
    ("snapshot", "handle"): snapshot.StateHandle,
    ("snapshot", "group"): snapshot.CommittableGroup,
    ("request", ""): mailbox.Request,
    ("answer", ""): mailbox.Answer,
    ("heartbeat", ""): heartbeats.Heartbeat,
    ("heartbeat", "process"): heartbeats.ProcessIdentity,
    ("heartbeat", "progress"): heartbeats.Progress,
    ("heartbeat", "standing"): heartbeats.Standing,
    ("heartbeat", "current"): heartbeats.CurrentCheckpoint,
    ("heartbeat", "failed-at"): heartbeats.FailedAt,
    ("event", ""): history.Event,
    ("event", "`checkpoint-cost`: what a checkpoint or savepoint cost"): measures.CheckpointCost,
    ("event", "`recovery-time`: how long the way back took"): measures.RecoveryTime,
    ("stream", ""): records.StreamCopy,
    ("root", ""): root_store.RootIdentity,
    ("summary", ""): summary.Summary,
    ("summary", "kept slot"): summary.KeptSlot,
    ("summary", "kept decision"): summary.KeptDecision,
    ("summary", "ids"): summary.CompletedBy,
    ("summary", "span"): id_ranges.Span,
}


def tables(page: str) -> dict[str, list[list[str]]]:
    """The rows of each table of a page, by the heading above it; '' for what stands before the first one."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| field ", "| --- ")):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@pytest.mark.parametrize(("kind", "heading"), sorted(DOCUMENTED))
def test_the_pages_name_every_field_its_default_and_the_version_that_brought_it(kind: str, heading: str) -> None:
    rows = tables((DOCS / f"{kind}.md").read_text())[heading]
    fields = dataclasses.fields(DOCUMENTED[kind, heading])
    assert [name for name, *_ in rows] == [field.name for field in fields]
    for (name, type_, _, since), field in zip(rows, fields, strict=True):
        assert 1 <= int(since) <= wire.VERSIONS[kind], name
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        says_default = re.search(r", (`\w+`|empty|0|all defaults)$", type_) is not None
        assert says_default == (has_default and name != "nonce"), f"{kind} {heading}: {name}"


def test_every_kind_has_its_page_and_the_index_leads_to_it() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"README"}
    assert pages == set(BODIES)
    index = (DOCS / "README.md").read_text()
    assert set(re.findall(r"\| \[\w+\]\((\w+)\.md\)", index)) == set(BODIES)


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_no_table_is_left_undocumented(kind: str) -> None:
    found = tables((DOCS / f"{kind}.md").read_text())
    assert set(found) == {heading for page, heading in DOCUMENTED if page == kind}
