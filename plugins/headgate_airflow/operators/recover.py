"""RecoverLost and ConfirmRecovered: the two steps of the restore DAG. The launch's own slot is the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.fleet import by_root, declared_fleet
from headgate_airflow.following import described_launch
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.launching import LaunchingOperator
from headgate_contract.errors import HeadgateError
from headgate_control import Condition, Control, Launched, StreamStatus

_SUSPECT = (Condition.LOST, Condition.FAILED, Condition.SILENT)
_AT_ONCE = 8


class RecoverLost(BaseOperator):
    """Look at every declared stream and relaunch those that are lost, as their restart strategies allow.

    Whatever woke the DAG is only a hint: storage is looked at anew. Does not wait for the drivers to run, and one
    stream's trouble does not keep the others: it returns one entry for each stream that was launched or could not be,
    the arguments of a ConfirmRecovered each.
    """

    template_fields: Sequence[str] = ("conn_id", "streams_file")

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        streams_file: str | Path | None = None,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=5),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.conn_id = conn_id
        self.streams_file = str(streams_file) if streams_file is not None else None

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> list[dict[str, Any]]:
        by = TaskIdentity.of(context).by
        outcomes: list[dict[str, Any]] = []
        for root, streams in by_root(declared_fleet(self.streams_file)).items():
            try:
                outcomes += self._recover_on(root, streams, by)
            except HeadgateError as error:
                # The streams on other roots can still be helped; these are tried again with the next event.
                self.log.error("the streams %s cannot be looked at: %s", ", ".join(streams), error)
                outcomes += [_entry(stream, root, problem=str(error)) for stream in streams]
        return outcomes

    def _recover_on(self, root: str | None, streams: Iterable[str], by: str) -> list[dict[str, Any]]:
        control = HeadgateHook(self.conn_id or None, root=root).control(by=by)
        seen = {status.stream: status for status in control.fleet(streams)}
        earlier = [
            _entry(name, root, generation=status.generation) for name, status in seen.items() if _is_of(status, by)
        ]
        suspects = [name for name, status in seen.items() if status.condition in _SUSPECT]
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            recovered = pool.map(lambda name: self._recover(control, name, root), suspects)
            return [*earlier, *(entry for entry in recovered if entry is not None)]

    def _recover(self, control: Control, stream: str, root: str | None) -> dict[str, Any] | None:
        try:
            outcome = control.recover(stream, wait=False)
        except (HeadgateError, OSError) as error:
            self.log.error("stream %s is not recovered: %s", stream, error)
            return _entry(stream, root, problem=str(error))
        if isinstance(outcome, Launched):
            self.log.info("stream %s: launched generation %d: %s", stream, outcome.generation, outcome.decision.reason)
            return _entry(stream, root, generation=outcome.generation)
        self.log.info("stream %s is left alone: %s", stream, outcome.reason)
        return None


def _is_of(status: StreamStatus, by: str) -> bool:
    """Was it launched by an earlier try of this very task?"""
    return status.by == by and status.live


def _entry(
    stream: str, root: str | None, *, generation: int | None = None, problem: str | None = None
) -> dict[str, Any]:
    number = int(generation) if generation is not None else None
    return {"stream": str(stream), "root": root, "generation": number, "problem": problem}


class ConfirmRecovered(LaunchingOperator):
    """Wait until the generation that RecoverLost launched runs, or fail with its `problem`: a task for each stream.

    A launch that fails is left to the restart strategy: the stream is lost again, and the next event brings the next
    try.
    """

    template_fields: Sequence[str] = (*LaunchingOperator.template_fields, "generation", "problem")
    stop_if_failed = False

    def __init__(self, *, generation: int | None = None, problem: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = generation
        self.problem = problem

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        if self.problem is not None or self.generation is None:
            raise AirflowFailException(f"stream {self.stream} was not recovered: {self.problem}")
        self.follow(self.generation, self.until())

    def superseded(self, by: str, status: StreamStatus, generation: int, until: float) -> dict[str, Any]:
        self.log.warning(
            "generation %d was overtaken by %s, which somebody else follows", generation, status.generation
        )
        return described_launch(status)

    def failed(self, control: Control) -> None:
        self.log.warning("the restart strategy decides what follows")
