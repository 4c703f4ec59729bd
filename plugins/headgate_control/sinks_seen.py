"""Looks at what the sinks of a stream hold, and tells what does not stem from its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import HeadgateError
from headgate_contract.fitting import JobShape, renamed
from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.moved import published_here
from headgate_contract.paths import METADATA
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, decode_metadata
from headgate_contract.store import ObjectStore
from headgate_control.deploy import Checker
from headgate_control.telling import counted

WHOLE = "--whole"
_TOLD_OF = 1000
"""Of no more groups does a sink tell: if it has so many, older ones may be there."""


Wanted = Mapping[VertexUid, Mapping[int, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class SinkSeen:
    """One sink."""

    uid: VertexUid
    history: str = ""
    """The launch of generation 1 of the stream that it says it belongs to."""
    generation: int = 0
    """The newest that has begun to write there."""
    groups: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """The newest groups, and what each consists of."""
    hidden: frozenset[int] = frozenset()
    """Those of them that were taken back."""
    faults: tuple[str, ...] = ()
    """Which of its own records are damaged or gone, why, and what becomes of each."""
    broken: tuple[str, ...] = ()
    """Their paths, below its target."""
    staged: frozenset[str] = frozenset()
    """What waits for being published."""
    unseen: bool = False
    """Whether it could not be looked at, or keeps nothing that could tell."""
    told: str = ""
    trouble: str = ""
    """What of it is not of this log; empty if nothing is."""
    hinders: bool = False
    """Whether a start would be refused for that, or come to nothing."""

    @property
    def highest(self) -> int:
        return max(self.groups, default=0)


def sinks_seen(checker: Checker, catalogue: Catalogue, *flags: str) -> tuple[SinkSeen, ...]:
    """What the sinks of the deployed job hold; the job file is asked, in a subprocess.

    With WHOLE also whether all of their own records are whole, however many there are.
    """
    deployed = catalogue.deployed
    if deployed is None:
        return ()
    try:
        found = checker.plan(
            Path(deployed.job),
            Settings(deployed.settings),
            Path(deployed.directory),
            "--sinks",
            str(catalogue.stream),
            *flags,
        )
    except (HeadgateError, OSError) as error:
        uids = deployed.plan.get("sinks", {})
        return tuple(
            SinkSeen(VertexUid(uid), unseen=True, told=f"it could not be looked at: {error}") for uid in sorted(uids)
        )
    former = _former(catalogue)  # on storage a sink is called what it was called first
    now = {former.get(VertexUid(uid), VertexUid(uid)): about for uid, about in found.get("sinks", {}).items()}
    return tuple(_seen(uid, about) for uid, about in sorted(now.items()))


def _seen(uid: VertexUid, about: Mapping[str, Any]) -> SinkSeen:
    if "error" in about:
        return SinkSeen(uid, unseen=True, told=f"it could not be looked at: {about['error']}")
    groups = {int(id): frozenset(names) for id, names in about.get("groups", {}).items()}
    hidden = frozenset(about.get("hidden", ()))
    faults = tuple(f"  {each['path']}: {each['why']}\n    -> {each['becomes']}" for each in about.get("faults", ()))
    broken = tuple(each["path"] for each in about.get("faults", ()))
    staged = frozenset(about.get("staged", ()))
    history, generation, unseen = about.get("history", ""), int(about.get("generation", 0)), "groups" not in about
    return SinkSeen(uid, history, generation, groups, hidden, faults, broken, staged, unseen)


def judge_sinks(
    store: ObjectStore, catalogue: Catalogue, sinks: Sequence[SinkSeen], wanted: Wanted
) -> tuple[SinkSeen, ...]:
    """What each sink holds that the log does not tell of, and what becomes of it.

    The log is to be read after the sinks were looked at: also while a driver runs it tells of what they held then.
    """
    former = _former(catalogue)
    retained = [found for ref in catalogue.snapshots if (found := _metadata(store, ref, former)) is not None]
    judged = (_judged(catalogue, sink, _carried(retained, sink.uid)) if not sink.told else sink for sink in sinks)
    return tuple(_lacking(catalogue, retained, sink, wanted.get(sink.uid, {})) for sink in judged)


def _lacking(
    catalogue: Catalogue, retained: Sequence[SnapshotMetadata], sink: SinkSeen, wanted: Mapping[int, frozenset[str]]
) -> SinkSeen:
    """`sink`, also judged by whether it has what is `wanted` there."""
    oldest = min(sink.groups, default=0) if len(sink.groups) >= _TOLD_OF else 0
    lost = sorted(id for id, names in wanted.items() if id not in sink.groups and id > oldest)
    published = [id for id in lost if not wanted[id]]
    torn = [id for id in lost if wanted[id] and not wanted[id] <= sink.staged]
    if sink.unseen or not (published or torn):
        return sink
    before = max((id for id in sink.groups if id < min(published + torn)), default=0)
    parts = [f"group {id}, which was published, is gone" for id in published]
    parts += [f"files of group {id}, which are to be published, are gone" for id in torn]
    what = f"{', '.join(parts)}, and so is whatever was published behind group {before}"
    ways = [each.id for each in retained if _is_before(sink, each, before)]
    again = (
        f"`headgate restore {catalogue.stream} --from {max(ways)}` publishes those records again"
        if ways
        else f"no retained snapshot is from before that: `headgate start {catalogue.stream} --fresh` publishes anew "
        "whatever the sources still have"
    )
    told = f"{what}: bring back what was there, or {again}; behind a repair it is given up. Besides: {sink.told}"
    trouble = f"{sink.trouble}, {what}" if sink.trouble else f"sink {sink.uid}: {what}"
    return replace(sink, told=told, trouble=trouble, hinders=True)


def _is_before(sink: SinkSeen, metadata: SnapshotMetadata, newest: int) -> bool:
    """Whether everything is there that this snapshot stands on, as far as `newest` is the last that is."""
    carried = _carried([metadata], sink.uid)
    there = [metadata.published.get(sink.uid, 0), *(id for id, names in carried.items() if names)]
    return all(id == 0 or (id <= newest and id in sink.groups) for id in there)


def unknown_output(
    store: ObjectStore, checker: Checker, catalogue: Catalogue, ref: SnapshotRef | None
) -> tuple[tuple[str, ...], bool]:
    """What the sinks hold that the log does not tell of, or lack that it does, as after a root or an output was put
    back from a copy, and what follows for a start from `ref`; and whether that start is refused for it.
    """
    if catalogue.newest_generation is None:
        return (), False
    found = []
    sinks = judge_sinks(store, catalogue, sinks_seen(checker, catalogue), expected(store, catalogue, ref))
    for sink in sinks:
        if sink.hinders:
            found.append(f"{sink.trouble}: a start is refused, `headgate repair {catalogue.stream}` says what to do")
        elif sink.trouble:
            found.append(f"{sink.trouble}: the next start takes back what is not of this log")
    return tuple(found), any(sink.hinders for sink in sinks)


def expected(store: ObjectStore, catalogue: Catalogue, ref: SnapshotRef | None) -> Wanted:
    """By sink the groups that a start from `ref` needs to find there; to be asked before they are looked at.

    Those without names are published. Of the others, which it publishes itself, the files are named.
    """
    metadata = _metadata(store, ref, _former(catalogue)) if ref is not None and not ref.foreign else None
    if metadata is None or catalogue.deployed is None:
        return {}
    found: dict[VertexUid, dict[int, frozenset[str]]] = {}
    for uid in [VertexUid(uid) for uid in catalogue.deployed.plan.get("sinks", {})]:
        groups = {id: names for id, names in _carried([metadata], uid).items() if names}
        groups |= {int(metadata.published[uid]): frozenset()} if uid in metadata.published else {}
        here = {id for id in groups if published_here(catalogue, catalogue.deployed, {uid: CheckpointId(id)})}
        found[uid] = {id: names for id, names in groups.items() if id in here}
    return found


def _judged(catalogue: Catalogue, sink: SinkSeen, carried: Mapping[int, frozenset[str]]) -> SinkSeen:
    unknown = {id for id in sink.groups if id >= catalogue.settled and not catalogue.tells_of(CheckpointId(id))}
    strangers = sorted(unknown - sink.hidden)
    others = sorted(id for id, names in carried.items() if sink.groups.get(id, names) != names)
    others = [id for id in others if not any(path.endswith(f"/manifests/{id:08d}.json") for path in sink.broken)]
    others = [] if catalogue.repaired is not None else others  # the next start sees to them
    taken = sorted(id for id in unknown if id >= catalogue.next_checkpoint)
    ahead = sink.generation >= catalogue.next_generation
    parts = []
    if strangers:
        parts.append(f"groups of which the log does not tell are published: {_runs(strangers)}")
    if taken and not strangers:
        parts.append(f"ids that come next are taken by groups of which the log does not tell: {_runs(taken)}")
    if others:
        parts.append(f"groups were published by another driver than the one that completed them: {_runs(others)}")
    if ahead:
        parts.append(f"generation {sink.generation} has begun to write there, which the log does not know")
    told = f"{', '.join(parts)}; the next start takes back what is not of this log" if parts else _well(sink)
    if sink.faults:
        more = f" and {len(sink.broken) - 1} others" if len(sink.broken) > 1 else ""
        told += "; the first start behind a repair makes whole what of its own records is not:\n"
        told += "\n".join(sink.faults)
        if catalogue.repaired is None:
            parts.append(f"its own records are damaged or gone: {sink.broken[0]}{more}")
    if not parts:
        return replace(sink, told=told)
    hinders = bool(taken or ahead or sink.faults)
    return replace(sink, told=told, trouble=f"sink {sink.uid}: {', '.join(parts)}", hinders=hinders)


def _well(sink: SinkSeen) -> str:
    shown = f"{counted(len(sink.groups) - len(sink.hidden), 'newest group')}, and the log tells of all there are"
    return f"{shown}; {counted(len(sink.hidden), 'was', 'were')} taken back" if sink.hidden else shown


def _former(catalogue: Catalogue) -> Mapping[VertexUid, VertexUid]:
    """Which uid of the deployed job goes by which one of before."""
    deployed = catalogue.deployed
    return JobShape.of(deployed.plan, Settings(deployed.settings)).former if deployed is not None else {}


def _metadata(store: ObjectStore, ref: SnapshotRef, former: Mapping[VertexUid, VertexUid]) -> SnapshotMetadata | None:
    """By the uids of now. None: it cannot be read."""
    path = f"{ref.folder}/{METADATA}"
    try:
        return renamed(decode_metadata(ref.store(store).read(path), ref, path), former)
    except HeadgateError:
        return None


def _carried(snapshots: Iterable[SnapshotMetadata], sink: VertexUid) -> dict[int, frozenset[str]]:
    """What these snapshots say that groups of `sink` consist of."""
    return {
        int(group.id): frozenset(str(handle["staged"]) for handle in group.sinks[sink] if "staged" in handle)
        for metadata in snapshots
        for group in metadata.committables
        if sink in group.sinks
    }


def _runs(ids: Sequence[int]) -> str:
    """Ids as people write them: 3, 5-9."""
    spans = IdRanges.of(ids).spans
    return ", ".join(f"{span.first}-{span.last}" if span.last > span.first else f"{span.first}" for span in spans)
