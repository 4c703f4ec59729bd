"""What the control plane tells without changing anything: status, fleet, explain, snapshots, costs, history, logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from headgate_contract.errors import BadInput
from headgate_contract.history import Event, read_history
from headgate_contract.ids import CheckpointId, Generation, SavepointName, StreamName
from headgate_contract.records import Deployed
from headgate_contract.restart import RestartAfter
from headgate_contract.restore import ClaimMode, Fresh, Located, Named, Newest, RestoreFrom
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Deployer, is_unchanged
from headgate_control.explain import Question, explain
from headgate_control.foreseeing import Foresight
from headgate_control.logs import log_of
from headgate_control.measured import Checkpoints, Recoveries, checkpoints_of, comparable, predict, recoveries_of
from headgate_control.outcomes import (
    Explanation,
    LogTail,
    Lost,
    StreamStatus,
)
from headgate_control.sharing import Sharing, sharing
from headgate_control.sinks_seen import unknown_output
from headgate_control.status import Observer
from headgate_control.undeclared import Undeclared


class Looking:
    """The verbs of one storage root that only look. Control has them, too."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        catalogues: Catalogues,
        observer: Observer,
        deployer: Deployer,
        foresight: Foresight,
        by: str,
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._observer = observer
        self._deployer = deployer
        self._foresight = foresight
        self._undeclared = Undeclared(catalogues, observer)
        self._by = by

    @property
    def root(self) -> str:
        """The storage root's URL."""
        return self._store.url

    def has_root(self) -> bool:
        """Whether there is a root: if not, the first deployment makes it."""
        return self._deployer.has_root()

    def deployed(self, stream: str) -> Deployed | None:
        """What the next start of the stream runs."""
        return self._catalogues.read(StreamName(stream)).deployed

    def runs(self, stream: str) -> Deployed | None:
        """What the stream's newest generation runs, which may be older than what is deployed; None: it has none."""
        catalogue = self._catalogues.read(StreamName(stream))
        newest = catalogue.newest_generation
        return catalogue.deployed_at(newest.deployed) if newest is not None else None

    def streams(self) -> list[str]:
        """The names of all streams that were ever deployed on this root."""
        return [str(name) for name in self._catalogues.names()]

    def status(self, stream: str, *, confirm: bool = False) -> StreamStatus:
        """How the stream is. `confirm` watches a SILENT one until it is clear whether it is LOST."""
        return self._observer.status(StreamName(stream), confirm=confirm)

    def fleet(self, streams: Iterable[str] | None = None) -> list[StreamStatus]:
        """The status of `streams` (those that were ever deployed), or of all, from one listing of the heartbeats.

        What is wrong with one of them hides no other: it is UNREADABLE, and its text says why.
        """
        names = [StreamName(stream) for stream in streams] if streams is not None else None
        return self._observer.fleet(names)

    def undeclared(self, streams: Iterable[str]) -> list[StreamStatus]:
        """The status of each stream beside `streams` that is at work on this root, or was and is not stopped.

        One that has just begun to is seen within half a minute, if the same Control is asked again and again.
        """
        return self._undeclared.beside([StreamName(stream) for stream in streams])

    def knows(self, stream: str) -> bool:
        """Was the stream ever deployed on this root?"""
        return bool(self._catalogues.look(StreamName(stream)).decisions)

    def has_its_job(self, stream: str) -> bool:
        """Is the job that a recovery of the stream would run here, as it was deployed?"""
        catalogue = self._catalogues.read(StreamName(stream))
        newest = catalogue.newest_generation
        ran = catalogue.deployed_at(newest.deployed) if newest is not None else None
        return any(each is not None and is_unchanged(each) for each in (ran, catalogue.deployed))

    def lost(self, streams: Iterable[str] | None = None) -> list[Lost]:
        """The lost streams whose restart is due now, of `streams` or of all; never blocks.

        Silence is confirmed between calls: ask the same Control again. status() also shows those given up or not due.
        """
        return due(self.fleet(streams))

    def explain(
        self,
        stream: str,
        *,
        snapshot: CheckpointId | SavepointName | Located | None = None,
        fresh: bool = False,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
        allow_non_restored_state: bool = False,
        claim_mode: ClaimMode = ClaimMode.NO_CLAIM,
        allow_place: bool = False,
        parallelism: int | None = None,
    ) -> Explanation:
        """What start (or restore) with these arguments would do now, and why.

        With another `parallelism` the job is checked for it, in a subprocess, as restore does.
        """
        question = question_of(
            snapshot,
            fresh=fresh,
            fall_back=fall_back,
            accept_duplicates=accept_duplicates,
            allow_non_restored_state=allow_non_restored_state,
            claim_mode=claim_mode,
            allow_place=allow_place,
        )
        catalogue = self._catalogues.read(StreamName(stream))
        number, deployed = self._catalogues.deployed(catalogue)
        usual = Settings(deployed.settings)["parallelism.default"]
        if parallelism is not None:
            deployed = self._deployer.rescaled(catalogue, parallelism, self._by)
        status, catalogue = self._observer.look(StreamName(stream))
        if status.live:
            found = self._foresight.explain(catalogue.stream, number, deployed, question)
        else:
            found = explain(self._store, catalogue, number, deployed, question)
            ref = found.decision.snapshot if isinstance(found.decision, RestoreFrom) else None
            unknown, refused = unknown_output(self._store, self._deployer.checker, catalogue, ref)
            found = replace(found, warnings=(*found.warnings, *unknown), refused_by_sinks=refused)
        measured = comparable(self._store, catalogue.stream)
        shared = sharing(self._store, catalogue.snapshots).get(found.restores) if found.restores is not None else None
        told = predict(measured, found.state_bytes)
        return replace(found, sharing=shared, prediction=told, deployed_parallelism=usual)

    def snapshots(self, stream: str) -> list[SnapshotRef]:
        """Every retained snapshot, newest first."""
        return list(self._catalogues.read(StreamName(stream)).snapshots)

    def sharing(self, stream: str) -> dict[CheckpointId, Sharing]:
        """Which files the retained snapshots share, of each whose metadata can be read."""
        return sharing(self._store, self._catalogues.read(StreamName(stream)).snapshots)

    def checkpoints(self, stream: str, *, limit: int = 50) -> Checkpoints:
        """What the newest checkpoints and savepoints cost, also those that failed, newest first."""
        self._catalogues.read(StreamName(stream))
        return checkpoints_of(self._store, StreamName(stream), limit)

    def recoveries(self, stream: str, *, limit: int = 50) -> Recoveries:
        """How long the newest starts and recoveries took, newest first."""
        self._catalogues.read(StreamName(stream))
        return recoveries_of(self._store, StreamName(stream), limit)

    def history(self, stream: str, *, limit: int | None = None) -> list[Event]:
        """What happened to the stream, oldest first: the newest `limit` events, or all."""
        self._catalogues.read(StreamName(stream))
        return read_history(self._store, StreamName(stream), limit)

    def logs(self, stream: str, generation: Generation | None = None, *, lines: int = 100) -> LogTail:
        """The last lines of a generation's log. Raises NotFound, with host and path, if it is elsewhere."""
        return log_of(self._catalogues.read(StreamName(stream)), generation, lines)


def question_of(
    snapshot: CheckpointId | SavepointName | Located | None = None, *, fresh: bool = False, **how: Any
) -> Question:
    """Which start is meant by whoever names `snapshot`, or nothing, and says `how`."""
    if fresh and snapshot is not None:
        raise BadInput("a start without state (fresh) names no snapshot", hint="leave one of the two out")
    if snapshot is None:
        return Question(wanted=Fresh() if fresh else Newest(), **how)
    return Question(wanted=snapshot if isinstance(snapshot, Located) else Named(snapshot), **how)


def due(fleet: Iterable[StreamStatus]) -> list[Lost]:
    """Those of `fleet` that are lost, and whose restart is due now."""
    found = [status.lost for status in fleet]
    return [
        lost for lost in found if lost is not None and isinstance(lost.restart, RestartAfter) and lost.due_in_s == 0
    ]
