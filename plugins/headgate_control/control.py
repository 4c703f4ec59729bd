"""The facade of the control plane: one method for each verb, used by the CLI and by Airflow alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headgate_contract.durations import Duration
from headgate_contract.history import Event
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName
from headgate_contract.mailbox import Answer, Request, RequestKind
from headgate_contract.records import Deployed
from headgate_contract.snapshot import SavepointOrigin, SnapshotRef
from headgate_control.outcomes import Asked, Explanation, Launched, LogTail, Lost, NotNeeded, StreamStatus


class Control:
    """The control plane of one storage root. Methods may be called from several threads.

    Every method that names a stream raises StreamUnknown if it was never deployed on this root.
    """

    @classmethod
    def open(cls, root: str, *, options: Mapping[str, Any] | None = None, by: str | None = None) -> Control:
        """The control plane of `root` (any URL that open_store takes); `by` says who asks, in logs and history."""
        raise NotImplementedError

    # -- deploy, start, restore, recover

    def deploy(
        self, stream: str, job: Path, settings: Mapping[str, object], *, directory: Path | None = None
    ) -> Deployed:
        """Validate `job` with `settings` in a subprocess and record it as what `stream` runs from its next start on.

        Repeating it changes nothing. A running generation goes on as it is. Raises BadInput or StorageUnreachable.
        """
        raise NotImplementedError

    def start(
        self,
        stream: str,
        *,
        fresh: bool = False,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
        wait: bool = True,
        kill_old: bool = True,
        by: str | None = None,
    ) -> Launched:
        """Launch the next generation by the rules of restore, and wait until its driver runs.

        Raises StreamRunning (who, where, since when), RestoreRefused, LaunchFailed. A start that failed leaves the stream
        down until it is started again. `kill_old=False` leaves a lost driver's process alone: it is fenced all the same.
        """
        raise NotImplementedError

    def restore(
        self,
        stream: str,
        *,
        snapshot: CheckpointId | SavepointName | None = None,
        savepoint_first: bool = True,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
        wait: bool = True,
        kill_old: bool = True,
        by: str | None = None,
    ) -> Launched:
        """start() from the named snapshot; a stream that runs is stopped first, with a savepoint unless told otherwise."""
        raise NotImplementedError

    def recover(
        self, stream: str, *, wait: bool = True, kill_old: bool = True, by: str | None = None
    ) -> Launched | NotNeeded:
        """Tier 2: if `stream` is lost and its outer restart strategy allows it, launch the next generation.

        Any number of callers may try at once: one launches, the others learn who did.
        """
        raise NotImplementedError

    # -- requests

    def ask(
        self,
        stream: str,
        kind: RequestKind,
        *,
        id: RequestId | None = None,
        args: Mapping[str, Any] | None = None,
        deadline: Duration | None = None,
        by: str | None = None,
    ) -> Request:
        """Leave a request for the running driver. The request that counts is returned: its id may be another ordinal.

        Repeating an id finds the first request. Raises StreamNotRunning if there is no live driver and no answer yet.
        """
        raise NotImplementedError

    def answer(self, stream: str, id: RequestId) -> Answer | None:
        """The answer to request `id`, or None while there is none.

        A request whose slot is in the log counts as answered, even if its driver died before it wrote the answer.
        """
        raise NotImplementedError

    def wait(self, stream: str, id: RequestId, timeout_s: float) -> Answer:
        """Wait for the answer. Raises RequestFailed (also if the driver dies meanwhile) or RequestTimedOut."""
        raise NotImplementedError

    def checkpoint(
        self,
        stream: str,
        *,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Have a checkpoint taken now."""
        raise NotImplementedError

    def savepoint(
        self,
        stream: str,
        name: str | None = None,
        *,
        origin: SavepointOrigin = SavepointOrigin.PERSON,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Have a savepoint taken, under `name` or one made up from the moment."""
        raise NotImplementedError

    def stop(
        self,
        stream: str,
        *,
        savepoint: bool | str = False,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Want the stream stopped, then ask its driver to stop at the next barrier; `savepoint` may give a name.

        From the first moment nobody restarts it. Of a stream without a live driver this says so in `note`, or raises
        StreamNotRunning if a savepoint was asked for; it stays stopped either way.
        """
        raise NotImplementedError

    def cancel(
        self,
        stream: str,
        *,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Want the stream stopped, and end its driver without a last snapshot."""
        raise NotImplementedError

    # -- looking

    def streams(self) -> list[str]:
        """The names of all streams that were ever deployed on this root."""
        raise NotImplementedError

    def status(self, stream: str, *, confirm: bool = False) -> StreamStatus:
        """How the stream is. `confirm` watches a SILENT one until it is clear whether it is LOST."""
        raise NotImplementedError

    def fleet(self) -> list[StreamStatus]:
        """The status of every stream, from one listing of the heartbeats."""
        raise NotImplementedError

    def lost(self, streams: Iterable[str] | None = None) -> list[Lost]:
        """The lost streams whose restart is due now, of `streams` or of all; never blocks.

        Silence is confirmed between calls: ask the same Control again. Those given up or not yet due are seen in status().
        """
        raise NotImplementedError

    def explain(
        self,
        stream: str,
        *,
        snapshot: CheckpointId | SavepointName | None = None,
        fresh: bool = False,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
    ) -> Explanation:
        """What start (or restore) with these arguments would do now, and why."""
        raise NotImplementedError

    def snapshots(self, stream: str) -> list[SnapshotRef]:
        """Every retained snapshot, newest first."""
        raise NotImplementedError

    def history(self, stream: str) -> list[Event]:
        """What happened to the stream, oldest first."""
        raise NotImplementedError

    def logs(self, stream: str, generation: Generation | None = None, *, lines: int = 100) -> LogTail:
        """The last lines of a generation's log, over its rotated files. Raises NotFound (host and path) if it is elsewhere."""
        raise NotImplementedError
