"""Repairs streams: gathers what a damaged log, its heartbeats, folders and sinks tell, and carries the plan out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue
from headgate_contract.damage import carry_out, read_entries
from headgate_contract.errors import CorruptObject, LogDamaged, ObjectMissing, StreamUnknown
from headgate_contract.evidence import highest_slot_told, read_copy
from headgate_contract.ids import StreamName
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.records import GenerationStarted, Hole, SnapshotCompleted, decision_log, slot_log
from headgate_contract.repair import Change, RepairFacts, RepairPlan, plan_repair
from headgate_contract.root_store import RootStore, adopt_root, root_fault
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef, read_metadata
from headgate_contract.summary import newest_summary
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Checker
from headgate_control.explain import Inspector
from headgate_control.journal import Journal, now_ms
from headgate_control.outcomes import Found, KeptSnapshot, RepairReport, RootReport
from headgate_control.signs import check_down, damaged_heartbeats, newest_sign
from headgate_control.sinks_seen import WHOLE, SinkSeen, expected, judge_sinks, sinks_seen

_LOOKS = 2
_LOOKED_AT = 10
"""How many of the newest snapshots a plan looks into."""


@dataclass(frozen=True, kw_only=True)
class Repairer:
    """Repairs the streams of one root."""

    store: RootStore
    catalogues: Catalogues
    checker: Checker
    journal: Journal

    def plan(self, stream: StreamName, by: str) -> RepairReport:
        """What a repair would do now. Nothing is changed."""
        plan, sinks = self._plan(stream, by)
        return self._report(plan, sinks, executed=False)

    def repair(self, stream: StreamName, by: str) -> RepairReport:
        """Carry the plan out, if there is anything to do. Raises StreamRunning, and Conflict if somebody writes."""
        self.store.check_writable()
        plan, sinks = self._plan(stream, by)
        if plan.closing is None:
            return self._report(plan, sinks, executed=False)
        deployed = plan.after.deployed
        check_down(self.store, stream, Settings(deployed.settings if deployed is not None else {}))
        with self.journal.action(stream, "repair", by, {"repair": plan.closing.record.repair}) as note:
            carry_out(self.store, plan)
            self.catalogues.forget(stream)
            note.text = plan.closing.record.reason
        return self._report(plan, sinks, executed=True)

    def before_a_fresh_start(self, stream: StreamName, by: str) -> tuple[str, ...]:
        """Repair `stream` if its log cannot be read; what to tell of it. Snapshots stay, as far as they are proven."""
        try:
            self.catalogues.look(stream)
        except LogDamaged as error:
            done = self.repair(stream, by)
            told = f"{error.what}: the log was repaired first ({done.reason}), nothing was deleted ({done.aside})"
            kept = f"{len(done.kept)} snapshots can still be restored" if done.kept else "no snapshot is left"
            return (f"{told}; {kept}: `headgate snapshots {stream}`",)
        return ()

    def root(self, by: str, *, execute: bool) -> RootReport:
        """What is wrong with the file that says which root this is. Raises NotARoot of a place that holds nothing."""
        fault = adopt_root(self.store, by=by, at_ms=now_ms()) if execute else root_fault(self.store)
        return RootReport(
            root=self.store.url,
            needed=fault is not None,
            executed=execute and fault is not None,
            reason=fault.what if fault is not None else "it says which root it is",
            becomes=fault.becomes if fault is not None else "",
        )

    # ------------------------------------------------------------------ what there is

    def _plan(self, stream: StreamName, by: str) -> tuple[RepairPlan, tuple[SinkSeen, ...]]:
        entries = self._entries(stream)
        sign = newest_sign(self.store, stream)
        copy = read_copy(self.store, stream)
        if not entries["slots"] and not entries["decisions"] and sign is None and copy is None:
            raise StreamUnknown(
                f"no stream {stream} was deployed on {self.store.url}", hint="`headgate status` lists those that were"
            )
        generation, checkpoint = self._highest(stream)
        facts = RepairFacts(
            stream=stream,
            **entries,
            copy=copy,
            highest_generation=max(generation, sign.seen.generation if sign is not None else 0),
            highest_checkpoint=checkpoint,
            repair=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}",
            by=by,
            at_ms=now_ms(),
        )
        for _ in range(_LOOKS):
            facts = replace(facts, whole=self._whole(plan_repair(replace(facts, whole=()))))
            before = plan_repair(facts).after
            wanted = expected(self.store, before, next(iter(before.history), None))
            sinks = sinks_seen(self.checker, before, WHOLE)
            if sinks:
                facts = replace(facts, **self._entries(stream))  # a driver may have gone on: what they hold is told of
            first = plan_repair(facts)
            sinks = judge_sinks(self.store, first.after, sinks, wanted)
            if not any(sink.trouble for sink in sinks):
                break  # else a driver may have published while its files were listed: what is true stays
        facts = replace(
            facts,
            gone=self._gone(first.after) if first.needed else {},
            history=next((sink.history for sink in sinks if sink.history), ""),
            highest_generation=max([facts.highest_generation, *(sink.generation for sink in sinks)]),
            highest_checkpoint=max([checkpoint, *(sink.highest for sink in sinks)]),
            wanted="; ".join(sink.trouble for sink in sinks if sink.trouble),
        )
        return plan_repair(facts), sinks

    def _entries(self, stream: StreamName) -> dict[str, Any]:
        """The logs as they are now."""
        slots = read_entries(slot_log(self.store, stream))
        decisions = read_entries(decision_log(self.store, stream))
        summary, _ = newest_summary(self.store, stream)
        read = [entry.number for entry in slots if entry.record is not None]  # any file may be called like one far on
        told = highest_slot_told(self.store, stream, max([summary.slot if summary is not None else 0, *read]))
        return {"slots": slots, "decisions": decisions, "summary": summary, "highest_slot": told}

    def _highest(self, stream: StreamName) -> tuple[int, int]:
        """The highest generation and id that any folder of the stream is named after."""
        paths = StreamPaths(stream)
        found = {
            info.path.removeprefix(f"{folder}/").partition("/")[0]
            for folder in (paths.checkpoints, paths.savepoints)
            for info in self.store.list(folder)
        }
        attempts = [attempt for attempt in map(paths.attempt_of, found) if attempt is not None]
        return max([0, *(generation for _, generation in attempts)]), max([0, *(id for id, _ in attempts)])

    def _whole(self, plan: RepairPlan) -> tuple[SnapshotRef, ...]:
        """Where entries are lost, the newest snapshots that no other tells of, and of which nothing is missing."""
        if not any(change.is_lost for change in plan.slots):
            return ()
        catalogue = plan.after
        paths, inspector = StreamPaths(catalogue.stream), Inspector(self.store)
        folders = {
            info.path.rpartition("/")[0]: info.path
            for folder in (paths.checkpoints, paths.savepoints)
            for info in self.store.list(folder)
            if info.path.endswith(f"/{METADATA}")
        }
        told = {ref.folder for ref in catalogue.completed}
        found = {}
        for folder in folders.keys() - told:
            try:
                data = self.store.read(f"{folder}/{METADATA}")
                metadata = read_metadata(data, f"{folder}/{METADATA}")
            except (ObjectMissing, CorruptObject):
                continue
            ref = SnapshotRef(
                metadata.id, metadata.kind, metadata.generation, folder, len(data), wire.sha256(data), metadata.name
            )
            if paths.attempt_of(folder.rpartition("/")[2]) == (ref.id, ref.generation):
                found[ref.id] = ref
        newest = [found[id] for id in sorted(found)[-_LOOKED_AT:]]
        for ref in newest:
            inspector.inspect(catalogue, ref)
        return tuple(ref for ref in newest if ref not in inspector.damaged)

    def _gone(self, catalogue: Catalogue) -> Mapping[SnapshotRef, str]:
        refs = [ref for ref in catalogue.snapshots if ref.location is None]
        paths = {ref: f"{ref.folder}/{METADATA}" for ref in refs}
        return {ref: f"{path} is gone" for ref, path in paths.items() if self.store.stat(path) is None}

    # ------------------------------------------------------------------ what to tell

    def _report(self, plan: RepairPlan, sinks: tuple[SinkSeen, ...], *, executed: bool) -> RepairReport:
        closing = plan.closing.record if plan.closing is not None else None
        after = plan.after
        inspector = Inspector(self.store)
        for ref in after.snapshots[:_LOOKED_AT]:
            inspector.inspect(after, ref)
        return RepairReport(
            stream=plan.stream,
            needed=plan.needed,
            executed=executed,
            repair=closing.repair if closing is not None else None,
            reason=closing.reason if closing is not None else "the log is whole",
            slots=tuple(map(_found, plan.slots)),
            decisions=tuple(map(_found, plan.decisions)),
            kept=tuple(KeptSnapshot(ref, inspector.found.get(ref, "not looked at")) for ref in after.snapshots),
            strangers=plan.strangers,
            given_up=plan.given_up,
            heartbeats=damaged_heartbeats(self.store, plan.stream),
            sinks=tuple(f"sink {sink.uid}: {sink.told}" for sink in sinks),
            deployed=after.deployed_number,
            next_generation=after.next_generation if closing is not None else None,
            next_checkpoint=after.next_checkpoint if closing is not None else None,
            aside=StreamPaths(plan.stream).repaired(closing.repair) if closing is not None else None,
        )


def _found(change: Change[Any]) -> Found:
    record: Any = change.record
    if change.mended:
        becomes = "its own bytes, which the checksum proves"
    elif isinstance(record, Hole):
        becomes = "given up: a hole"
    else:
        becomes = f"written anew: {record.TYPE}"
        becomes += f" ({record.decision.reason})" if isinstance(record, GenerationStarted) else ""
        becomes += f" ({record.snapshot} is there, whole)" if isinstance(record, SnapshotCompleted) else ""
    return Found(number=change.number, was=change.was.value, why=change.why, becomes=becomes)
