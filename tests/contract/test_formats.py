"""Files that older releases wrote are read to the same values for ever, and docs/formats says what is in them."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from headgate_contract import heartbeats, history, mailbox, measures, operator_state, records, restore, snapshot, wire
from headgate_contract.codec import to_plain
from headgate_contract.ids import SlotNumber
from headgate_contract.log import ExclusiveLog
from headgate_contract.paths import numbered
from headgate_contract.store import open_store
from tests.contract.store_suite import unique
from tests.contract.stored_values import VALUES, VALUES_2, VALUES_3, VALUES_4
from tests.house_rules import REPO

FIXTURES = Path(__file__).parent / "fixtures"
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
}
LOGS = ("slot", "decision")
RELEASED = (
    [(1, name) for name in sorted(VALUES)]
    + [(2, name) for name in sorted(VALUES_2)]
    + [(3, name) for name in sorted(VALUES_3)]
    + [(4, name) for name in sorted(VALUES_4)]
)
"""Every fixture: its version and its name."""
OTHERS = {"manifest", "segment"}  # what sinks and sources put into the same envelope


def read(kind: str, data: bytes) -> object:
    """The value in a stored file, read as the code reads it."""
    if kind not in LOGS:
        return wire.decode(kind, data, BODIES[kind], kind)
    store = open_store(f"memory://{unique()}")
    store.create(numbered("log", SlotNumber(1)), data)
    (slot,) = ExclusiveLog[Any](store, "log", kind, BODIES[kind]).read()
    return slot.record


def fixture(version: int, name: str) -> tuple[str, Any, bytes]:
    """The kind, the value that was written, and the file."""
    kind, value = {1: VALUES, 2: VALUES_2, 3: VALUES_3, 4: VALUES_4}[version][name]
    return kind, value, (FIXTURES / f"v{version}" / f"{name}.json").read_bytes()


@pytest.mark.parametrize(("version", "name"), RELEASED)
def test_a_file_of_any_version_is_read_to_what_it_was_written_from(version: int, name: str) -> None:
    kind, value, data = fixture(version, name)
    assert read(kind, data) == value


@pytest.mark.parametrize(("version", "name"), RELEASED)
def test_while_the_version_is_the_same_the_bytes_are_too(version: int, name: str) -> None:
    kind, value, data = fixture(version, name)
    body = {"writer": "e4da3b7fbbce2345d7772b0674a318d5", "record": to_plain(value)} if kind in LOGS else value
    assert (wire.encode(kind, body) == data) == (wire.VERSIONS[kind] == version)


def test_every_kind_of_file_and_of_record_has_a_fixture() -> None:
    assert set(BODIES) == set(wire.VERSIONS) - OTHERS
    stored = {(version, type(fixture(version, name)[1])) for version, name in RELEASED}
    for kind, body in BODIES.items():
        members = set(typing.get_args(body)) or {body}
        assert {(wire.VERSIONS[kind], member) for member in members} <= stored, f"{kind} lacks a fixture"
    found = {(int(path.parent.name.removeprefix("v")), path.stem) for path in FIXTURES.glob("v*/*")}
    assert found == set(RELEASED)


# ---- the pages

DOCUMENTED: dict[tuple[str, str], type] = {
    ("slot", "`generation-started`: a launch"): records.GenerationStarted,
    ("slot", "`snapshot-completed`: a checkpoint or savepoint"): records.SnapshotCompleted,
    ("slot", "`stopped`: the end of a generation in good order"): records.Stopped,
    ("slot", "`restarted`: the generation goes on after a failure"): records.Restarted,
    ("slot", "reference"): snapshot.SnapshotRef,
    ("slot", "restore-from"): restore.RestoreFrom,
    ("slot", "start-fresh"): restore.StartFresh,
    ("slot", "rejected"): restore.Rejected,
    ("slot", "rollback"): restore.SinkRollback,
    ("decision", "`deployed`: a job file with settings, under a stream's name"): records.Deployed,
    ("decision", "`stop-wanted`: nobody is to restart this generation"): records.StopWanted,
    ("decision", "`stop-withdrawn`: its stop failed and it runs on"): records.StopWithdrawn,
    ("decision", "`retired`: these snapshots are no candidates any more"): records.Retired,
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
    ("event", ""): history.Event,
    ("event", "`checkpoint-cost`: what a checkpoint or savepoint cost"): measures.CheckpointCost,
    ("event", "`recovery-time`: how long the way back took"): measures.RecoveryTime,
    ("stream", ""): records.StreamCopy,
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
