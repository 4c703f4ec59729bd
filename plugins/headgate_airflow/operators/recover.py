"""RecoverLost and ConfirmRecovered: the two steps of the restore DAG. The launch's own slot is the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from headgate_airflow.all_roots import on_all_roots
from headgate_airflow.failures import told_to_airflow
from headgate_airflow.fleet import declared_fleet
from headgate_airflow.following import described_launch
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.launching import LaunchingOperator
from headgate_airflow.triggers.lost import about_undeclared
from headgate_contract.errors import HeadgateError, LaunchFailed, NotARoot
from headgate_control import Condition, Control, Launched, StreamStatus

_SUSPECT = (Condition.LOST, Condition.FAILED, Condition.SILENT)
_AT_ONCE = 8


class RecoverLost(BaseOperator):
    """Look at every stream that is watched and relaunch those that are lost, as their restart strategies allow.

    Those are the streams of streams.yaml, also such as have a mistake there now, and whatever else is at work on the
    fleet's roots, if its job is on this machine.

    Whatever woke the DAG is only a hint: storage is looked at anew. Does not wait for the drivers to run, and one
    stream's trouble does not keep the others: it returns one entry for each stream that was launched or could not be,
    the arguments of a ConfirmRecovered each. All roots are looked at at once; one that has not let itself be looked at
    within `root_timeout` (ten seconds, if nothing names it any more) is given up until the next event.
    """

    template_fields: Sequence[str] = ("conn_id", "streams_file")

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        streams_file: str | Path | None = None,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=5),
        execution_timeout: timedelta | None = timedelta(minutes=10),
        root_timeout: timedelta = timedelta(seconds=60),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, execution_timeout=execution_timeout, **kwargs)
        self.root_timeout = root_timeout
        self.conn_id = conn_id
        self.streams_file = str(streams_file) if streams_file is not None else None

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> list[dict[str, Any]]:
        by = TaskIdentity.of(context).by
        outcomes: list[dict[str, Any]] = []
        fleet = declared_fleet(self.streams_file)
        for mistake in fleet.file.mistakes:
            self.log.error("%s; what it said before is watched", mistake.at(fleet.file.path))
        unforeseen: Exception | None = None
        work = partial(self._recover_on, by=by, ignored=fleet.ignored)
        for root, streams, recovered in on_all_roots(fleet, work, self.root_timeout):
            try:
                outcomes += recovered.result()
            except NotARoot as error:  # nobody has deployed there yet; else its drivers say that it is gone
                self.log.error("nothing can be lost there: %s", error)
            except (HeadgateError, OSError) as error:
                # The streams on other roots can still be helped; these are tried again with the next event.
                self.log.error("on %s the streams %s cannot be looked at: %s", root, ", ".join(streams) or "-", error)
                outcomes += [_entry(stream, root, problem=str(error)) for stream in streams]
            except Exception as error:
                self.log.exception("what is on %s cannot be looked at", root)
                unforeseen = error
        if unforeseen is not None:
            raise unforeseen  # behind all roots: the task's next try finds what this one has launched
        return outcomes

    def _recover_on(
        self, root: str | None, streams: Iterable[str], answered: Event, *, by: str, ignored: Iterable[str]
    ) -> list[dict[str, Any]]:
        control = HeadgateHook(self.conn_id or None, root=root).control(by=by)
        undeclared = {status.stream: status for status in control.undeclared([*streams, *ignored])}
        seen = {status.stream: status for status in control.fleet(streams)} | undeclared
        answered.set()
        for status in undeclared.values():
            self.log.warning("%s", about_undeclared(status, root))
        earlier = [
            _entry(name, root, generation=status.generation) for name, status in seen.items() if _is_of(status, by)
        ]
        suspects = [name for name, status in seen.items() if status.condition in _SUSPECT]
        strange = [name for name in suspects if name in undeclared and not control.has_its_job(name)]
        for name in strange:
            self.log.warning("stream %s is left alone: its job is not on this machine as it was deployed", name)
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            wanted = [name for name in suspects if name not in strange]
            recovered = pool.map(lambda name: self._recover(control, name, root), wanted)
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

    def failed(self, control: Control, me: TaskIdentity, told: LaunchFailed) -> HeadgateError:
        self.log.warning("the restart strategy decides what follows")
        return told
