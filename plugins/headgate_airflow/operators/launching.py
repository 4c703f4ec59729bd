"""Following a launch until its stream runs: shared by every operator that starts a generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.following import (
    ENDED,
    RUNS,
    SUPERSEDED,
    TIMED_OUT,
    described_launch,
    outcome_of,
    own_generation,
)
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.base import StreamOperator
from headgate_airflow.triggers.running import StreamRunningTrigger
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import HeadgateError, LaunchFailed, StreamRunning
from headgate_contract.ids import Generation, StreamName
from headgate_control import Control, StreamStatus
from headgate_control.logs import root_cause
from headgate_control.telling import who_runs

_LOG_LINES = 400
_SHOWN_LINES = 40


class LaunchingOperator(StreamOperator):
    """Waits for the generation that it launched, or for its successor if the restore DAG has to replace it meanwhile.

    A cleared task follows the driver again. Of one that a user marks as failed while it waits, the driver is asked to
    stop.
    """

    stop_if_failed = True

    def own_live_generation(self, control: Control, by: str) -> Generation | None:
        """The generation that an earlier try of this very task launched, if it is still at work."""
        own = own_generation(self.catalogue(), by)
        return own if own is not None and control.status(self.stream).live else None

    def follow(self, generation: int, until: float) -> NoReturn:
        """Defer until generation `generation` runs."""
        self.log.info("waiting for generation %d of stream %s to run", generation, self.stream)
        self.wait_with(
            StreamRunningTrigger, "launched", until, generation=generation, stop_if_failed=self.stop_if_failed
        )

    @told_to_airflow()
    def launched(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Called when the trigger has fired: looks itself at what became of the launch."""
        generation, until = event["asked"]["generation"], event["asked"]["until"]
        by = TaskIdentity.of(context).by
        control = self.control(context)
        status = control.status(self.stream)
        outcome = outcome_of(status, generation)
        if outcome in (RUNS, ENDED):
            self.log.info("stream %s: %s", self.stream, status.text)
            return described_launch(status)
        if outcome == SUPERSEDED:
            return self.superseded(by, status, generation, until)
        if outcome is None and event["outcome"] == TIMED_OUT:
            raise AirflowException(f"{event['why']} after {self.timeout}: {status.text}; it was left alone")
        if outcome is None:
            self.follow(generation, until)
        raise self.failed(control, TaskIdentity.of(context), self._told(control, status))

    def superseded(self, by: str, status: StreamStatus, generation: int, until: float) -> dict[str, Any]:
        """A newer generation has started: follow it if it only replaces our own, else say whose it is."""
        own = own_generation(self.catalogue(), by)
        if own is not None:
            self.log.warning("generation %d was lost and replaced by %d", generation, own)
            self.follow(own, until)
        raise StreamRunning(f"generation {generation} of stream {self.stream} was overtaken: {who_runs(status)}")

    def failed(self, control: Control, me: TaskIdentity, told: LaunchFailed) -> HeadgateError:
        """The launch failed, and a person will be told so: nothing may come up behind his back. What he is told."""
        control.stop(self.stream, wait=False)
        return told

    def _told(self, control: Control, status: StreamStatus) -> LaunchFailed:
        return LaunchFailed(
            f"generation {status.generation} of stream {self.stream} did not come up: {self._cause(control, status)}",
            hint=f"its log is {status.log} on {status.host}",
        )

    def _cause(self, control: Control, status: StreamStatus) -> str:
        """What the driver said of itself, or what its log says of it, if that is on this host."""
        try:
            tail = control.logs(self.stream, status.generation, lines=_LOG_LINES)
        except (HeadgateError, OSError) as error:
            self.log.error("the driver's log cannot be shown here: %s", error)
            return status.cause or status.text
        self.log.error("the end of %s:\n%s", tail.path, "\n".join(tail.lines[-_SHOWN_LINES:]))
        deployed = self.catalogue().deployed_at(status.running_deployed or 0)
        found = root_cause(list(tail.lines), deployed.job, deployed.directory) if deployed is not None else ""
        return status.cause or f"{status.text}; {found}"

    def catalogue(self) -> Catalogue:
        return read_catalogue(self.hook.storage.open(), StreamName(self.stream))
