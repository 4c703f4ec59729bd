"""What the control plane tells without changing anything: status, fleet, explain, snapshots, costs, history, logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headgate_contract.errors import BadInput
from headgate_contract.history import Event, read_history
from headgate_contract.ids import CheckpointId, Generation, SavepointName, StreamName
from headgate_contract.records import Deployed
from headgate_contract.restart import RestartAfter
from headgate_contract.restore import ClaimMode, Fresh, Located, Named, Newest
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Deployer
from headgate_control.explain import Question, explain
from headgate_control.logs import log_of
from headgate_control.measured import Checkpoints, Recoveries, checkpoints_of, comparable, predict, recoveries_of
from headgate_control.outcomes import (
    Explanation,
    LogTail,
    Lost,
    StreamStatus,
)
from headgate_control.status import Observer


class Looking:
    """The verbs of one storage root that only look. Control has them, too."""

    def __init__(
        self, *, store: ObjectStore, catalogues: Catalogues, observer: Observer, deployer: Deployer, by: str
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._observer = observer
        self._deployer = deployer
        self._by = by

    @property
    def root(self) -> str:
        """The storage root's URL."""
        return self._store.url

    def deployed(self, stream: str) -> Deployed | None:
        """What the next start of the stream runs."""
        return self._catalogues.read(StreamName(stream)).deployed

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

    def lost(self, streams: Iterable[str] | None = None) -> list[Lost]:
        """The lost streams whose restart is due now, of `streams` or of all; never blocks.

        Silence is confirmed between calls: ask the same Control again. status() also shows those given up or not due.
        """
        found = [status.lost for status in self.fleet(streams)]
        return [
            lost for lost in found if lost is not None and isinstance(lost.restart, RestartAfter) and lost.due_in_s == 0
        ]

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
        parallelism: int | None = None,
    ) -> Explanation:
        """What start (or restore) with these arguments would do now, and why.

        With another `parallelism` the job is checked for it, in a subprocess, as restore does.
        """
        if fresh and snapshot is not None:
            raise BadInput("a start without state (fresh) names no snapshot", hint="leave one of the two out")
        wanted = Fresh() if fresh else wanted_by(snapshot)
        status, catalogue = self._observer.look(StreamName(stream))
        number, deployed = self._catalogues.deployed(catalogue)
        if parallelism is not None:
            deployed = self._deployer.rescaled(catalogue, parallelism, self._by)
        question = Question(
            wanted=wanted,
            fall_back=fall_back,
            accept_duplicates=accept_duplicates,
            allow_non_restored_state=allow_non_restored_state,
            claim_mode=claim_mode,
        )
        found = explain(self._store, catalogue, number, deployed, question, live=status.live)
        measured = comparable(self._store, catalogue.stream)
        return replace(found, prediction=predict(measured, found.state_bytes))

    def snapshots(self, stream: str) -> list[SnapshotRef]:
        """Every retained snapshot, newest first."""
        return list(self._catalogues.read(StreamName(stream)).snapshots)

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


def wanted_by(snapshot: CheckpointId | SavepointName | Located | None) -> Newest | Named | Located:
    """What is to be restored for whoever names `snapshot`, or nothing."""
    if snapshot is None:
        return Newest()
    return snapshot if isinstance(snapshot, Located) else Named(snapshot)
