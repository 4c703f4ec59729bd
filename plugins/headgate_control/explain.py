"""Gathers what a restore decision rests on, has it decided, and tells it to people. start uses this too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import BadInput, CorruptObject, ObjectMissing
from headgate_contract.fitting import JobShape, as_brought, fit
from headgate_contract.ids import CheckpointId, Generation, VertexUid
from headgate_contract.mailbox import Mailbox
from headgate_contract.paths import METADATA
from headgate_contract.records import Deployed, SnapshotCompleted
from headgate_contract.restore import (
    ClaimMode,
    Located,
    Named,
    Refuse,
    RestoreDecision,
    RestoreFacts,
    RestoreFrom,
    Rollback,
    SinkRollback,
    Wanted,
    decide_restore,
)
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, StateHandle, decode_metadata
from headgate_contract.store import ObjectStore
from headgate_contract.wire import sha256
from headgate_control.locating import locate
from headgate_control.outcomes import Explanation
from headgate_control.telling import size, took

CHECKSUM_BUDGET = 256 << 20
"""Bytes of state that one explanation reads to compare checksums; beyond it files are compared by length."""
_ALTERNATIVES_CHECKED = 10
_KEPT_BY_ITS_STREAM = "socket"
"""The kind of source whose records are in no snapshot, and nowhere but with the stream that read them."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which start is asked about."""

    wanted: Wanted | Located
    fall_back: bool | None = None
    """None: what the stream's settings say."""
    accept_duplicates: bool = False
    allow_non_restored_state: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    """Of the snapshot that is named."""

    def __post_init__(self) -> None:
        if self.claim_mode is ClaimMode.CLAIM and not isinstance(self.wanted, Named | Located):
            raise BadInput("what is to be claimed is not named", hint="name the savepoint, or leave the claim mode out")


def explain(
    store: ObjectStore, catalogue: Catalogue, number: int, deployed: Deployed, question: Question, *, live: bool = False
) -> Explanation:
    """What a start of `deployed` (the decision `number`) would do now; if it is `live`, once it was stopped.

    Which snapshots are damaged, or do not fit what is deployed, is found out for those that matter: decide, look at
    what was decided on, decide again.
    """
    settings = Settings(deployed.settings)
    shape, committed = JobShape.of(deployed.plan, settings), None if live else catalogue.committed

    non_restored: dict[SnapshotRef, tuple[VertexUid, ...]] = {}
    wanted = question.wanted
    if isinstance(wanted, Located):
        wanted = Named(locate(store, catalogue, wanted))

    def misfit(ref: SnapshotRef, metadata: SnapshotMetadata) -> str | None:
        if ref.foreign and any(source.kind == _KEPT_BY_ITS_STREAM for source in metadata.sources.values()):
            return "what its socket has sent is in a log of the stream that took it"
        found = fit(as_brought(metadata, ref), shape, committed)
        left = tuple(sorted(found.non_restored))
        refusal = found.refusal(left if question.allow_non_restored_state else _left_behind(catalogue, ref))
        if refusal is None and left:
            non_restored[ref] = left
        return str(refusal) if refusal is not None else None

    inspector = Inspector(store, misfit)
    while True:
        decision = decide_restore(
            RestoreFacts(
                catalogue=catalogue,
                wanted=wanted,
                damaged=inspector.damaged,
                sinks=sinks_of(deployed),
                fall_back=settings["headgate.fall-back"] if question.fall_back is None else question.fall_back,
                accept_duplicates=question.accept_duplicates,
                non_restored=non_restored,
                claim_mode=question.claim_mode,
            )
        )
        unseen = [ref for ref in _named_in(decision) if ref not in inspector.found]
        if not unseen:
            break
        for ref in unseen:
            inspector.inspect(catalogue, ref)
    newest = catalogue.newest_generation
    return Explanation(
        stream=catalogue.stream,
        decision=decision,
        next_generation=newest.generation.next() if newest is not None else Generation(1),
        deployed=number,
        keeps=_keeps(catalogue, decision),
        checked={ref.where: said for ref, said in inspector.found.items()},
        warnings=(
            *_warnings(catalogue, decision),
            *_finished(store, catalogue, decision),
            *_ended(decision, inspector.ended, deployed),
        ),
        state_bytes=inspector.state_bytes.get(decision.snapshot, 0) if isinstance(decision, RestoreFrom) else 0,
    )


def _keeps(catalogue: Catalogue, decision: RestoreDecision) -> CheckpointId | None:
    """What the log could retire before this is carried out; what lies elsewhere, it does not retire."""
    if not isinstance(decision, RestoreFrom):
        return None
    ref = decision.snapshot
    return ref.id if ref in catalogue.snapshots or ref in catalogue.claimed else None


def _left_behind(catalogue: Catalogue, ref: SnapshotRef) -> tuple[VertexUid, ...]:
    """What somebody allowed the newest generation to leave of `ref`: a start after a crash goes by that."""
    newest = catalogue.newest_generation
    decision = newest.decision if newest is not None else None
    return decision.non_restored if isinstance(decision, RestoreFrom) and decision.snapshot == ref else ()


def sinks_of(deployed: Deployed) -> dict[VertexUid, Rollback]:
    """What each sink of the deployed job can do about a rollback; one that does not say can do nothing."""
    sinks = deployed.plan.get("sinks", {})
    return {VertexUid(uid): Rollback(about.get("rollback", Rollback.DUPLICATES.value)) for uid, about in sinks.items()}


class Inspector:
    """Looks whether snapshots can be restored, with one budget of bytes for all of them."""

    def __init__(
        self,
        store: ObjectStore,
        misfit: Callable[[SnapshotRef, SnapshotMetadata], str | None] = lambda ref, metadata: None,
        budget: int = CHECKSUM_BUDGET,
    ) -> None:
        """`misfit` tells why a snapshot does not fit what is to go on from it."""
        self._store = store
        self._misfit = misfit
        self._budget = budget
        self.found: dict[SnapshotRef, str] = {}
        self.damaged: dict[SnapshotRef, str] = {}
        self.state_bytes: dict[SnapshotRef, int] = {}
        self.ended: dict[SnapshotRef, frozenset[VertexUid]] = {}
        """The sources that had ended."""

    def inspect(self, catalogue: Catalogue, ref: SnapshotRef) -> None:
        """Note whether `ref` is good or why it is not. Raises StorageError if the storage itself cannot be read."""
        try:
            path = f"{ref.folder}/{METADATA}"
            metadata = decode_metadata(ref.store(self._store).read(path), ref, path)
            if not ref.foreign and (metadata.stream != catalogue.stream or metadata.id != ref.id):
                self._damage(ref, f"{path} belongs to snapshot {metadata.id} of stream {metadata.stream}")
                return
            why = self._misfit(ref, metadata)
            if why is not None:
                self._damage(ref, why)
                return
            self.found[ref] = self._files(ref, metadata)
            self.state_bytes[ref] = _state_bytes(metadata)
            ended = (uid for uid, source in metadata.sources.items() if source.position.get("ended"))
            self.ended[ref] = frozenset(ended)
        except (CorruptObject, ObjectMissing) as error:
            self._damage(ref, error.what)

    def _damage(self, ref: SnapshotRef, why: str) -> None:
        self.found[ref] = self.damaged[ref] = why

    def _files(self, ref: SnapshotRef, metadata: SnapshotMetadata) -> str:
        by_length = 0
        handles = list(metadata.handles())
        for handle in handles:
            if not self._check(ref, handle):
                by_length += 1
        if by_length:
            return f"good ({by_length} of {len(handles)} files by length only)"
        return "good"

    def _check(self, ref: SnapshotRef, handle: StateHandle) -> bool:
        """Raise CorruptObject or ObjectMissing for a bad file; False if its checksum was beyond the budget."""
        store, path = ref.store(self._store), ref.path(handle)
        info = store.stat(path)
        if info is None:
            raise ObjectMissing(f"the state file {path} is missing")
        if info.length != handle.length:
            raise CorruptObject(f"the state file {path} has {info.length} bytes instead of {handle.length}")
        if handle.length > self._budget:
            return False
        self._budget -= handle.length
        if sha256(store.read(path)) != handle.sha256:
            raise CorruptObject(f"the state file {path} has another checksum than it was written with")
        return True


def _state_bytes(metadata: SnapshotMetadata) -> int:
    """The bytes of the state's files, each counted once."""
    subtasks = (subtask for vertex in metadata.vertices.values() for subtask in vertex.subtasks)
    return sum({file.path: file.length for subtask in subtasks for file in subtask.files}.values())


def _named_in(decision: RestoreDecision) -> tuple[SnapshotRef, ...]:
    if isinstance(decision, RestoreFrom):
        return (decision.snapshot,)
    return decision.alternatives[:_ALTERNATIVES_CHECKED] if isinstance(decision, Refuse) else ()


def _warnings(catalogue: Catalogue, decision: RestoreDecision) -> tuple[str, ...]:
    """What a person should hear even if it was asked for."""
    found = []
    if isinstance(decision, RestoreFrom) and decision.reason.startswith("falling back"):
        found.append(f"{decision.reason}: {'; '.join(f'{r.snapshot}: {r.why}' for r in decision.rejected)}")
    if isinstance(decision, RestoreFrom) and decision.non_restored:
        found.append(f"what {decision.snapshot} has of {', '.join(decision.non_restored)} is NOT restored, and lost")
    if isinstance(decision, RestoreFrom) and decision.claim_mode is ClaimMode.CLAIM:
        found.append(f"{decision.snapshot} becomes the stream's: newer checkpoints subsume it, and delete it")
    certain = [r.sink for r in decision.rollbacks if r.action is Rollback.DUPLICATES]
    if certain and not isinstance(decision, Refuse):
        found.append(f"the sinks {', '.join(certain)} will hold duplicates: what they published cannot be taken back")
    taken = [r.sink for r in decision.rollbacks if r.action is Rollback.RETRACT]
    if taken and not isinstance(decision, Refuse):
        what = "since then " if isinstance(decision, RestoreFrom) else ""
        found.append(f"what the sinks {', '.join(taken)} have published {what}is taken back")
    if catalogue.snapshots and not isinstance(decision, (RestoreFrom, Refuse)):
        found.append(f"state is left behind: {len(catalogue.snapshots)} retained snapshots are not used")
    return tuple(found)


def _finished(store: ObjectStore, catalogue: Catalogue, decision: RestoreDecision) -> tuple[str, ...]:
    """Whether a drain has ended with the snapshot: what was asked for there says so."""
    if not isinstance(decision, RestoreFrom):
        return ()
    records = [slot.record for slot in catalogue.slots if isinstance(slot.record, SnapshotCompleted)]
    asked = next((record.request for record in records if record.snapshot.id == decision.snapshot.id), None)
    try:
        request = Mailbox(store, catalogue.stream).request(asked) if asked is not None else None
    except CorruptObject:  # a word to a person is not worth a start
        return ()
    if request is None or not request.args.get("drain"):
        return ()
    return (f"{decision.snapshot} is of a drained stream: its operators have finished, and go on with what that left",)


def _ended(
    decision: RestoreDecision, ended: Mapping[SnapshotRef, frozenset[VertexUid]], deployed: Deployed
) -> tuple[str, ...]:
    """Which sources are not asked again, whatever has come since."""
    if not isinstance(decision, RestoreFrom):
        return ()
    sources = deployed.plan.get("sources", {})
    over = ended.get(decision.snapshot, frozenset())
    bounded = sorted(uid for uid, about in sources.items() if about.get("bounded") and uid in over)
    if not bounded:
        return ()
    told = f"of the sources {', '.join(bounded)} nothing more is read: they had ended in {decision.snapshot}"
    return (f"{told}, so the stream ends once its steps have finished" if len(bounded) == len(sources) else told,)


def as_text(explanation: Explanation) -> str:
    """The explanation for people."""
    decision = explanation.decision
    lines = [f"stream {explanation.stream}, next generation {explanation.next_generation}"]
    match decision:
        case RestoreFrom(snapshot, reason):
            lines += [f"would restore {snapshot} of generation {snapshot.generation}", f"  because: {reason}"]
            lines.append(f"  checked: {explanation.checked.get(snapshot.where, 'not looked at')}")
        case Refuse(reason):
            lines += ["would refuse to start", f"  because: {reason}"]
        case _:
            lines += ["would start without state", f"  because: {decision.reason}"]
    if decision.rejected:
        lines.append("not taken:")
        lines += [f"  {rejected.snapshot}: {rejected.why}" for rejected in decision.rejected]
    if isinstance(decision, Refuse):
        lines += _alternatives(decision, explanation.checked)
    if decision.rollbacks:
        lines.append("what sinks published since then:")
        lines += [f"  {_rollback(rollback)}" for rollback in decision.rollbacks]
    if not isinstance(decision, Refuse):
        lines.append(_prediction(explanation))
    lines += [f"warning: {warning}" for warning in explanation.warnings]
    return "\n".join(lines)


def _prediction(explanation: Explanation) -> str:
    found = explanation.prediction
    if found is None:
        return "how long it would take: no start was measured yet that tells"
    return (
        f"would take about {took(found.expected_ms)} from its claim to running: redeploy {took(found.redeploy_ms)}, "
        f"load state {took(found.load_state_ms)} ({size(found.state_bytes)}), "
        f"reset source {took(found.reset_source_ms)}, reset sink {took(found.reset_sink_ms)}\n"
        f"  it rests on {found.launches} launches and {found.rests_on - found.launches} restarts in a driver: medians "
        "(redeploy: of the launches), and for the state what a byte has taken"
    )


def _alternatives(decision: Refuse, checked: Mapping[str, str]) -> list[str]:
    """What could be named instead, whether it is good, and what it would cost."""
    costs = {cost.snapshot.id: cost.rollbacks for cost in decision.costs}
    lines = ["could be restored instead (restore --from ID):"] if decision.alternatives else []
    for ref in decision.alternatives:
        lines.append(f"  {ref}: {checked.get(ref.where, 'not looked at')}")
        lines += [f"    {_rollback(rollback)}" for rollback in costs.get(ref.id, ())]
    return lines


def _rollback(rollback: SinkRollback) -> str:
    return f"{rollback.sink}: {_ROLLBACK_TEXT[rollback.action]} ({_groups(rollback.groups)})"


_ROLLBACK_TEXT = {
    Rollback.RETRACT: "is taken back",
    Rollback.OVERWRITE: "stays until it is overwritten by the same keys",
    Rollback.DUPLICATES: "stays, and will be published again: duplicates for certain",
}


def _groups(groups: tuple[CheckpointId, ...]) -> str:
    if len(groups) == 1:
        return f"of checkpoint {groups[0]}"
    return f"of checkpoints {groups[0]} to {groups[-1]}, {len(groups)} in all"
