"""Gathers what a restore decision rests on, and has it decided. start uses this too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import BadInput, CorruptObject, ObjectMissing
from headgate_contract.fitting import JobShape, as_brought, fit
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.mailbox import Mailbox
from headgate_contract.moved import moved_since, published_elsewhere
from headgate_contract.paths import METADATA
from headgate_contract.places import Places
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
    Wanted,
    decide_restore,
)
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, StateHandle, decode_metadata
from headgate_contract.store import ObjectStore
from headgate_contract.wire import sha256
from headgate_control.locating import locate
from headgate_control.outcomes import Explanation
from headgate_control.telling import counted

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
    allow_place: bool = False
    """The place that is named is allowed for this once, whatever the settings say."""

    def __post_init__(self) -> None:
        if self.allow_place and not isinstance(self.wanted, Located):
            raise BadInput("what is to be allowed is not named", hint="name the place with --from URL")
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
    wanted = question.wanted
    if isinstance(wanted, Located):
        places = None if question.allow_place else Places.of(store.url, settings)
        wanted = Named(locate(store, catalogue, wanted, places))
    misfits = misfits_of(catalogue, deployed, question, committed=None if live else catalogue.committed)
    inspector = Inspector(store, misfits)
    elsewhere = published_elsewhere(catalogue, deployed)
    while True:
        decision = decide_restore(
            RestoreFacts(
                catalogue=catalogue,
                wanted=wanted,
                damaged=inspector.damaged,
                sinks=sinks_of(deployed),
                elsewhere=elsewhere,
                fall_back=settings["headgate.fall-back"] if question.fall_back is None else question.fall_back,
                accept_duplicates=question.accept_duplicates,
                non_restored=misfits.non_restored,
                claim_mode=question.claim_mode,
                allow_place=question.allow_place,
            )
        )
        unseen = [ref for ref in _named_in(decision) if ref not in inspector.found]
        if not unseen:
            break
        for ref in unseen:
            inspector.inspect(catalogue, ref)
    return Explanation(
        stream=catalogue.stream,
        decision=decision,
        next_generation=catalogue.next_generation,
        deployed=number,
        parallelism=settings["parallelism.default"],
        deployed_parallelism=settings["parallelism.default"],
        keeps=_keeps(catalogue, decision),
        checked={ref.where: said for ref, said in inspector.found.items()},
        warnings=(
            *_warnings(catalogue, decision, inspector.damaged),
            *_left_there(catalogue, decision, deployed),
            *_finished(store, catalogue, decision),
            *_ended(decision, inspector.ended, deployed),
        ),
        state_bytes=inspector.state_bytes.get(decision.snapshot, 0) if isinstance(decision, RestoreFrom) else 0,
    )


@dataclass(frozen=True, kw_only=True)
class Misfits:
    """Why snapshots do not fit what is deployed, and what of those that do is left behind."""

    catalogue: Catalogue
    deployed: Deployed
    shape: JobShape
    question: Question
    committed: Set[CheckpointId] | None
    """None: all groups will be, before it is restored."""
    non_restored: dict[SnapshotRef, tuple[VertexUid, ...]] = field(default_factory=dict)

    def __call__(self, ref: SnapshotRef, metadata: SnapshotMetadata) -> str | None:
        if ref.foreign and any(source.kind == _KEPT_BY_ITS_STREAM for source in metadata.sources.values()):
            return "what its socket has sent is in a log of the stream that took it"
        moves = moved_since(self.catalogue, ref, self.deployed)
        found = fit(as_brought(metadata, ref), self.shape, self.committed, moves)
        left = tuple(sorted(found.non_restored))
        allowed = left if self.question.allow_non_restored_state else _left_behind(self.catalogue, ref)
        refusal = found.refusal(allowed)
        if refusal is None and left:
            self.non_restored[ref] = left
        return str(refusal) if refusal is not None else None


def misfits_of(
    catalogue: Catalogue, deployed: Deployed, question: Question, *, committed: Set[CheckpointId] | None
) -> Misfits:
    shape = JobShape.of(deployed.plan, Settings(deployed.settings))
    return Misfits(catalogue=catalogue, deployed=deployed, shape=shape, question=question, committed=committed)


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
            metadata = self._metadata(ref)
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

    def misfit(self, ref: SnapshotRef) -> str | None:
        """Why it does not fit, whether its files are good or not. Raises CorruptObject or ObjectMissing."""
        return self._misfit(ref, self._metadata(ref))

    def _metadata(self, ref: SnapshotRef) -> SnapshotMetadata:
        path = f"{ref.folder}/{METADATA}"
        return decode_metadata(ref.store(self._store).read(path), ref, path)

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


def _warnings(catalogue: Catalogue, decision: RestoreDecision, damaged: Mapping[SnapshotRef, str]) -> tuple[str, ...]:
    """What a person should hear even if it was asked for."""
    found = []
    if isinstance(decision, RestoreFrom) and decision.reason.startswith("falling back"):
        bad = [r for r in decision.rejected if r.snapshot in damaged or not catalogue.is_retained(r.snapshot)]
        found.append(f"{decision.reason}: {'; '.join(f'{r.snapshot}: {r.why}' for r in bad)}")
    if isinstance(decision, RestoreFrom) and decision.non_restored:
        found.append(f"what {decision.snapshot} has of {', '.join(decision.non_restored)} is NOT restored, and lost")
    if isinstance(decision, RestoreFrom) and decision.claim_mode is ClaimMode.CLAIM:
        found.append(f"{decision.snapshot} becomes the stream's: newer checkpoints subsume it, and delete it")
    if isinstance(decision, RestoreFrom) and decision.place_allowed:
        found.append(f"{decision.snapshot.where} is allowed for this once, whatever the settings say of places")
    certain = [r.sink for r in decision.rollbacks if r.action is Rollback.DUPLICATES]
    if certain and not isinstance(decision, Refuse):
        found.append(f"{_sinks(certain)} will hold duplicates: what was published cannot be taken back")
    taken = [r.sink for r in decision.rollbacks if r.action is Rollback.RETRACT]
    if taken and not isinstance(decision, Refuse):
        what = "since then " if isinstance(decision, RestoreFrom) else ""
        has = "has" if len(taken) == 1 else "have"
        found.append(f"what {_sinks(taken)} {has} published {what}is taken back")
    if catalogue.snapshots and not isinstance(decision, (RestoreFrom, Refuse)):
        unused = counted(len(catalogue.snapshots), "retained snapshot is", "retained snapshots are")
        found.append(f"state is left behind: {unused} not used")
    return tuple(found)


def _left_there(catalogue: Catalogue, decision: RestoreDecision, deployed: Deployed) -> tuple[str, ...]:
    """What sinks published before they were given another place."""
    if isinstance(decision, Refuse):
        return ()
    moves = moved_since(catalogue, None, deployed).sinks
    return tuple(
        f"sink {uid} wrote to {move.before} and writes to {move.now} now: what it published there stays there"
        for uid, move in sorted(moves.items())
    )


def _sinks(uids: list[VertexUid]) -> str:
    return f"{'sink' if len(uids) == 1 else 'sinks'} {', '.join(uids)}"


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
