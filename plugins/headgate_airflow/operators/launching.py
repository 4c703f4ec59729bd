"""Following a launch until its stream runs: shared by every operator that starts a generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.base import StreamOperator
from headgate_airflow.triggers.base import TIMED_OUT
from headgate_airflow.triggers.running import ENDED, RUNS, SUPERSEDED, StreamRunningTrigger, what_is_seen
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import HeadgateError, LaunchFailed, StreamRunning
from headgate_contract.ids import Generation, StreamName
from headgate_contract.restore import RestoreFrom
from headgate_control import Control, StreamStatus
from headgate_control.telling import who_runs

_LOG_LINES = 40


def own_generation(catalogue: Catalogue, by: str) -> Generation | None:
    """The newest generation, if `by` started it, or if it replaces, lost after lost, one that `by` started. Pure."""
    newest = start = catalogue.newest_generation
    while start is not None and start.by != by and start.replaces is not None:
        start = catalogue.generation(start.replaces)
    return newest.generation if newest is not None and start is not None and start.by == by else None


def result_of(status: StreamStatus) -> dict[str, Any]:
    """What a task that started a stream returns."""
    decision = status.decision
    return {
        "stream": status.stream,
        "generation": status.generation,
        "condition": status.condition.value,
        "restored_from": int(decision.snapshot.id) if isinstance(decision, RestoreFrom) else None,
        "reason": decision.reason if decision is not None else "",
        "host": status.host,
        "log": status.log,
    }


class LaunchingOperator(StreamOperator):
    """Waits for the generation that it launched, or for its successor if the restore DAG has to replace it meanwhile.

    A user who marks the waiting task as failed, or clears it, does not stop the driver: a cleared task follows it
    again, and the stop DAG ends it.
    """

    def own_live_generation(self, control: Control, by: str) -> Generation | None:
        """The generation that an earlier try of this very task launched, if it is still at work."""
        own = own_generation(self._catalogue(), by)
        return own if own is not None and control.status(self.stream).live else None

    def follow(self, generation: int, until: float) -> NoReturn:
        """Defer until generation `generation` runs."""
        self.log.info("waiting for generation %d of stream %s to run", generation, self.stream)
        self.wait_with(StreamRunningTrigger, "launched", until, generation=generation)

    @told_to_airflow()
    def launched(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Called when the trigger has fired: looks itself at what became of the launch."""
        generation, until = event["asked"]["generation"], event["asked"]["until"]
        by = TaskIdentity.of(context).by
        control = self.control(context)
        status = control.status(self.stream)
        seen = what_is_seen(status, generation)
        outcome = seen["outcome"] if seen is not None else event["outcome"]
        if outcome in (RUNS, ENDED) and seen is not None:
            self.log.info("stream %s: %s", self.stream, status.text)
            return result_of(status)
        if outcome == SUPERSEDED:
            return self.superseded(by, status, generation, until)
        if outcome == TIMED_OUT:
            raise AirflowException(f"{event['why']} after {self.timeout}: {status.text}; it was left alone")
        if seen is None:
            self.follow(generation, until)
        self.failed(control)
        raise self._told(control, status)

    def superseded(self, by: str, status: StreamStatus, generation: int, until: float) -> dict[str, Any]:
        """A newer generation has started: follow it if it only replaces our own, else say whose it is."""
        own = own_generation(self._catalogue(), by)
        if own is not None:
            self.log.warning("generation %d was lost and replaced by %d", generation, own)
            self.follow(own, until)
        raise StreamRunning(f"generation {generation} of stream {self.stream} was overtaken: {who_runs(status)}")

    def failed(self, control: Control) -> None:
        """The launch failed, and a person will be told so: nothing may come up behind his back."""
        control.stop(self.stream, wait=False)

    def _told(self, control: Control, status: StreamStatus) -> LaunchFailed:
        try:
            tail = control.logs(self.stream, status.generation, lines=_LOG_LINES)
            self.log.error("the end of %s:\n%s", tail.path, "\n".join(tail.lines))
        except HeadgateError as error:
            self.log.error("the driver's log cannot be shown here: %s", error)
        return LaunchFailed(
            f"generation {status.generation} of stream {self.stream} did not come up: {status.cause or status.text}",
            hint=f"its log is {status.log} on {status.host}",
        )

    def _catalogue(self) -> Catalogue:
        return read_catalogue(self.hook.storage.open(), StreamName(self.stream))
