"""What must hold at every moment of a simulation, told from storage and the sink alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.coordinator.coordinator import INPUT_ENDED
from headgate.coordinator.cut import is_at_end
from headgate.testing.simulation.database import Database, Row, last_word
from headgate.testing.simulation.disk import Disk
from headgate.testing.simulation.job import NUMBERS, RECORDS
from headgate.testing.simulation.lives import Steps
from headgate.testing.simulation.turns import Host
from headgate_contract import wire
from headgate_contract.ids import VertexUid
from headgate_contract.paths import number_of
from headgate_contract.snapshot import SnapshotMetadata, read_metadata

SLOTS = "streams/simulated/slots/"
SUMMARIES = "streams/simulated/summaries/"
ANSWERS = "streams/simulated/answers/"
REQUESTS = "streams/simulated/requests/"


class LawBroken(BaseException):
    """The protocol did what it must never do. No driver may take it for a failure of its own."""


@dataclass(frozen=True)
class Completed:
    """A snapshot as its slot tells of it."""

    id: int
    generation: int
    position: int
    needs: frozenset[str]
    own: tuple[str, ...]
    """The staged things of its own group."""
    drain: bool = False
    """It was asked for by a stop that drains the stream, or holds the last words of one."""
    finished: frozenset[str] = frozenset()
    """The tasks that have, as it says."""


@dataclass(frozen=True)
class Moment:
    """Where a stream stands between two turns, told from what its job holds and not from any position."""

    states: Mapping[VertexUid, Counter[str]]
    """Of each task the state of all subtasks."""
    finished: frozenset[VertexUid]
    in_flight: Mapping[str, Counter[str]] = field(default_factory=dict)
    """The records in each written channel, those that a task is at included."""
    watermarks_ms: Mapping[VertexUid, int | None] = field(default_factory=dict)


@dataclass
class Laws:
    """Watches every change of storage and every effect of the sink."""

    disk: Disk
    database: Database
    steps: Steps
    records: int
    keys: int
    generations: dict[int, int | None] = field(default_factory=dict)
    """Each generation that was started, and the snapshot that it was started from."""
    completed: dict[int, Completed] = field(default_factory=dict)
    retired: set[int] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)
    """Of all slots, those too that were folded since."""
    newest_slot: str = ""
    """The kind of the newest slot."""
    stopped_with: int = 0
    """The position of the snapshot with which the newest generation has stopped; 0 if it has not, or was cancelled."""
    input_ended: bool = False
    """It has stopped by itself."""
    done_for: dict[str, int] = field(default_factory=dict)
    """By the request that asked for it, the snapshot that was completed."""
    needed: Counter[str] = field(default_factory=Counter)
    currents: int = 0
    """How often a checkpoint was said to be current."""
    _snapshots: dict[int, tuple[SnapshotMetadata, dict[str, object]]] = field(default_factory=dict)
    _sources: frozenset[str] = frozenset({RECORDS})
    _tasks: frozenset[VertexUid] = frozenset({NUMBERS})

    def __post_init__(self) -> None:
        self._seen = (-1, -1)
        self.disk.created = self._created
        self.disk.deleted = self._deleted
        self.database.told = self._told

    # ---- storage

    def _created(self, path: str, data: bytes, host: Host) -> None:
        if path.startswith(ANSWERS):
            self._answered(json.loads(data)["body"])
        if not path.startswith(SLOTS):
            if self.needed[path]:
                raise LawBroken(f"{host.name} overwrites {path}, which a completed snapshot needs")
            return
        record = json.loads(data)["body"]["record"]
        if number_of(path) == self.slots + 1:
            self._created_slot(record, host)
        elif record["type"] != "generation-started":  # a launch that was frozen for long finds out, and starts nothing
            raise LawBroken(f"{host.name} creates {path}, and the newest slot is {self.slots}")

    def _created_slot(self, record: dict[str, Any], host: Host) -> None:
        self.kinds.append(record["type"])
        if self.newest_slot:
            self.steps.take("slot", self.newest_slot, record["type"])
        self.newest_slot = record["type"]
        generation = record["generation"]
        newest = max(self.generations, default=0)
        self.stopped_with, self.input_ended = 0, False
        if record["type"] == "generation-started":
            if generation != newest + 1:
                raise LawBroken(f"generation {generation} follows {newest}")
            snapshot = record["decision"].get("snapshot")
            self.generations[generation] = snapshot["id"] if snapshot else None
            if snapshot and snapshot["id"] in self.retired:
                raise LawBroken(f"generation {generation} is started from {snapshot['id']}, which is retired")
        elif generation != newest:
            raise LawBroken(f"{host.name}: a {record['type']} of generation {generation} behind the start of {newest}")
        elif record["type"] == "snapshot-completed":
            self._completed(record, generation)
        elif record["type"] == "restarted":
            self._restarted(record, generation)
        elif record["snapshot"] is None:
            self._retire(record)
        else:
            end = self.completed[record["snapshot"]]
            self.stopped_with, self.input_ended = end.position, record["reason"] == INPUT_ENDED
            if self.input_ended and (end.finished != self._tasks or end.position != self.records):
                raise LawBroken(f"the input has ended with {end.id}, and not everybody has finished: {end.finished}")

    def _answered(self, answer: dict[str, Any]) -> None:
        """Who is told that a snapshot is there finds it in the log; who is told that there is none does not.

        A stop may fail though its snapshot is there: the stream has failed in between, and goes on.
        """
        request, snapshot = answer["id"], answer["result"].get("snapshot")
        if answer["outcome"] == "done" and snapshot is not None and snapshot not in self.completed:
            raise LawBroken(f"{request} is answered with snapshot {snapshot}, which has no slot")
        own = self.done_for.get(request)
        failed = answer["outcome"] != "done" and "is complete" not in answer["why"]
        if failed and own is not None and not self._is_stop(request):
            raise LawBroken(f"{request} is answered as failed ({answer['why']}), and its snapshot {own} is there")

    def _is_stop(self, request: str) -> bool:
        asked = self._asked(request)
        return asked is not None and asked["kind"] == "stop"

    def _asked(self, request: str) -> dict[str, Any] | None:
        stored = self.disk.objects.get(f"{REQUESTS}{request}.json")
        return None if stored is None else json.loads(stored)["body"]

    def _own(self, generation: int) -> list[Completed]:
        return [snapshot for snapshot in self.completed.values() if snapshot.generation == generation]

    def _restarted(self, record: dict[str, object], generation: int) -> None:
        newest = max((own.id for own in self._own(generation)), default=self.generations[generation])
        if record["snapshot"] != newest or newest in self.retired:
            raise LawBroken(f"generation {generation} restarts from {record['snapshot']}, its newest is {newest}")

    def _completed(self, record: dict[str, object], generation: int) -> None:
        ref = record["snapshot"]
        assert isinstance(ref, dict)
        path = f"{ref['folder']}/_metadata"
        data = self.disk.objects.get(path)
        if data is None or wire.sha256(data) != ref["metadata_sha256"]:
            raise LawBroken(f"snapshot {ref['id']} is completed without its metadata")
        metadata = read_metadata(data, path)
        if ref["id"] in self.completed:
            raise LawBroken(f"snapshot {ref['id']} is completed twice")
        needs = {path, *(self._place(metadata, ref, handle.path) for handle in metadata.handles())}
        if not metadata.sources.keys() >= self._sources:
            raise LawBroken(f"snapshot {ref['id']} is completed without the position of its source")
        if isinstance(record["request"], str):
            self.done_for[record["request"]] = int(ref["id"])
        position = sum(int(source.position["next"]) for source in metadata.sources.values())
        groups = metadata.committables[-1:]
        own = [handle["staged"] for group in groups for handles in group.sinks.values() for handle in handles]
        drain = (ref["name"] is not None and self._wants_drain(record["request"])) or bool(self._last_words(own))
        finished = frozenset(metadata.finished)
        if ref["name"] is not None and self._wants_drain(record["request"]) and finished != self._tasks:
            raise LawBroken(f"snapshot {ref['id']}: the stream was drained, and only {finished} have finished")
        early = [uid for uid, source in metadata.sources.items() if self._ends_early(source.position)]
        if early:
            raise LawBroken(f"snapshot {ref['id']} says that {early} have ended, and they have more")
        snapshot = Completed(int(ref["id"]), generation, position, frozenset(needs), tuple(own), drain, finished)
        if any(end.drain and end.position != position for end in self._own(generation)):
            raise LawBroken(f"snapshot {snapshot.id}: generation {generation} has taken in records behind its drain")
        self.completed[snapshot.id] = snapshot
        self._snapshots[snapshot.id] = (metadata, ref)
        self.needed.update(needs)
        self._check_cut(metadata, ref, snapshot)
        self._retire(record)

    def _ends_early(self, position: Mapping[str, Any]) -> bool:
        return is_at_end(dict(position)) and int(position["next"]) != self._of_each_source

    @property
    def _of_each_source(self) -> int:
        """How many records it has."""
        return self.records

    def _wants_drain(self, request: object) -> bool:
        asked = self._asked(request) if isinstance(request, str) else None
        return asked is not None and bool(asked["args"].get("drain"))

    def _retire(self, record: dict[str, object]) -> None:
        retires = record["retires"]
        assert isinstance(retires, list)
        for id in retires:
            self.retired.add(id)
            self.needed.subtract(self.completed[id].needs)

    def _place(self, metadata: SnapshotMetadata, ref: dict[str, object], path: str) -> str:
        return path if metadata.name is None else f"{ref['folder']}/{path}"

    def _deleted(self, path: str, host: Host) -> None:
        if self.needed[path] > 0:
            raise LawBroken(f"{host.name} deletes {path}, which a snapshot needs")
        number = number_of(path)
        if path.startswith(SLOTS) and number is not None and number <= self.slots:
            self._deleted_slot(path, number, host)

    def _deleted_slot(self, path: str, number: int, host: Host) -> None:
        """Only completions, and only what two summaries cover: its number would be free for whoever was frozen."""
        if self.kinds[number - 1] != "snapshot-completed":
            raise LawBroken(f"{host.name} deletes {path}, a {self.kinds[number - 1]}")
        summaries = [number_of(other) or 0 for other in self.disk.objects if other.startswith(SUMMARIES)]
        if sum(other > number for other in summaries) < 2:
            raise LawBroken(f"{host.name} deletes {path}, and the summaries reach up to {summaries}")

    @property
    def slots(self) -> int:
        return len(self.kinds)

    # ---- the cut

    def _check_cut(self, metadata: SnapshotMetadata, ref: dict[str, object], snapshot: Completed) -> None:
        """State, positions and output of a snapshot are those of one and the same prefix of the input."""
        counts: dict[int, int] = {}
        for vertex in metadata.vertices.values():
            for subtask in vertex.subtasks:
                for handle in subtask.files:
                    path = self._place(metadata, ref, handle.path)
                    data = self.disk.objects.get(path)
                    if data is None or len(data) != handle.length or wire.sha256(data) != handle.sha256:
                        raise LawBroken(f"snapshot {snapshot.id} is completed, and {path} is not there as it says")
                    counts.update({int(key): count for key, count in json.loads(data).items()})
        wanted = Counter(id % self.keys for id in range(snapshot.position))
        if counts != dict(wanted):
            raise LawBroken(f"snapshot {snapshot.id}: the state is not that of the first {snapshot.position} records")
        rows: list[Row] = []
        for id in self.lineage(snapshot.id):
            for name in self.completed[id].own:
                if name not in self.database.staged:
                    raise LawBroken(f"snapshot {snapshot.id}: what was staged as {name} is gone")
                rows += self.database.staged[name]
        self._check_rows(rows, snapshot.position, f"snapshot {snapshot.id}")
        self._check_last_words(snapshot)

    def _last_words(self, own: Sequence[str]) -> list[Row]:
        return [row for name in own for row in self.database.staged.get(name, ()) if row[0] < 0]

    def _check_last_words(self, snapshot: Completed) -> None:
        """With the snapshot of a drain stands what the operators have finished: of every key, once at this position."""
        lineage = (self.completed[id] for id in self.lineage(snapshot.id))
        here = [name for each in lineage if each.position == snapshot.position for name in each.own]
        said = sorted(self._last_words(here))
        wanted = Counter(id % self.keys for id in range(snapshot.position))
        whole = said == sorted((last_word(key), count) for key, count in wanted.items())
        if not whole and (said or snapshot.drain or snapshot.finished):
            raise LawBroken(f"snapshot {snapshot.id}: of {dict(wanted)} the drain has said {said}")
        if said and not snapshot.finished:
            raise LawBroken(f"snapshot {snapshot.id} does not say that the operators have finished")

    def lineage(self, id: int | None) -> list[int]:
        """The completed snapshots that a snapshot stands on, itself included."""
        found: list[int] = []
        while id is not None:
            own = self.completed[id]
            found += [
                other.id for other in self.completed.values() if other.generation == own.generation and other.id <= id
            ]
            id = self.generations[own.generation]
        return sorted(found)

    def _check_rows(self, rows: list[Row], position: int, what: str) -> None:
        rows = _of_records(rows)
        if sorted(id for id, _ in rows) != list(range(position)):
            seen = Counter(id for id, _ in rows)
            lost = [id for id in range(position) if not seen[id]]
            doubled = [id for id, times in seen.items() if times > 1]
            raise LawBroken(f"{what}: of {position} records {lost} are lost, {doubled} doubled in the output")
        wrong = [(id, number) for id, number in rows if number != id // self.keys + 1]
        if wrong:
            raise LawBroken(f"{what}: wrong numbers: {wrong}")

    # ---- what is current

    def check_current(self, generation: int, checkpoint: int, now: Moment) -> None:
        """Whatever is said to be current is there, and restores to exactly what there is now.

        Of an older generation nobody asks: it may not have seen yet that it has a successor.
        """
        if generation != max(self.generations):
            return
        self.currents += 1
        own = self.completed.get(checkpoint)
        if own is None or checkpoint in self.retired:
            raise LawBroken(f"checkpoint {checkpoint} is called current, and is not retained")
        restored = self._restores_to(checkpoint)
        if restored != now:
            raise LawBroken(f"checkpoint {checkpoint} is called current: it restores {restored}, and there is {now}")

    def _restores_to(self, id: int) -> Moment:
        metadata, ref = self._snapshots[id]
        states = {uid: self._held(metadata, ref, uid) for uid in self._tasks}
        return Moment(states=states, finished=frozenset(metadata.finished))

    def _held(self, metadata: SnapshotMetadata, ref: dict[str, object], uid: VertexUid) -> Counter[str]:
        vertex = metadata.vertices.get(uid)
        handles = [handle for subtask in vertex.subtasks for handle in subtask.files] if vertex is not None else []
        counts: dict[str, int] = {}
        for handle in handles:  # a later segment overrides an earlier one
            counts.update(json.loads(self.disk.objects[self._place(metadata, ref, handle.path)]))
        return Counter(counts)

    # ---- the sink

    def _told(self, what: str, group: int, generation: int) -> None:
        if group not in self.completed:
            raise LawBroken(f"generation {generation}: group {group} is {what} and has no slot")

    def seen(self) -> Counter[str]:
        """What else there was, kind by kind."""
        return Counter({"checkpoints that were not repeated": self.currents})

    # ---- after each step

    def check(self) -> None:
        """What must hold at every moment; nothing to do where nothing has changed since it was looked at."""
        if self.disk.changes != self._seen[0]:
            self._check_kept()
        if self._seen != (self.disk.changes, self.database.changes):
            self._check_effects()
        self._seen = (self.disk.changes, self.database.changes)

    def _check_kept(self) -> None:
        """No completed snapshot lacks a handle, and nothing that one refers to is gone."""
        gone = sorted(path for path, times in self.needed.items() if times > 0 and path not in self.disk.objects)
        if gone:
            raise LawBroken(f"{', '.join(gone)} is gone, which a completed snapshot needs")

    def _check_effects(self) -> None:
        """Readers see a prefix of the input, each record once, of groups that the writing generation may show."""
        self._check_shown(self.database)
        rows = self.database.visible()
        self._check_rows(rows, len(_of_records(rows)), f"generation {self.database.generation} has written")

    def _check_shown(self, database: Database) -> None:
        shown = sorted(database.published)
        strangers = [group for group in shown if group not in self.completed]
        if strangers:
            raise LawBroken(f"groups {strangers} are visible and have no slot")
        generation = database.generation
        mine = [group for group in shown if self.completed[group].generation == generation]
        allowed = {*mine, *self.lineage(self.generations.get(generation))}
        if not allowed.issuperset(shown):
            left = sorted(set(shown) - allowed)
            raise LawBroken(f"groups {left} are visible, which generation {generation} does not stand on")

    def check_end(self) -> None:
        """Everything was read and the stream has stopped."""
        self.check()
        self._check_rows(self.database.visible(), self.records, "at the end")


def _of_records(rows: list[Row]) -> list[Row]:
    """Without the last words of drains."""
    return [row for row in rows if row[0] >= 0]
