"""RestoreStream: starts a stream from a snapshot that was chosen, stopping it first if it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.asking import AskingOperator
from headgate_airflow.operators.base import flag, optional_flag, optional_number, optional_text
from headgate_airflow.operators.launching import LaunchingOperator
from headgate_contract.errors import HeadgateError, LaunchFailed, StreamNotRunning
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName
from headgate_contract.restore import Located
from headgate_control import Control
from headgate_control.locating import claim_mode_named, snapshot_named

_STOP = "stop-to-restore"


class RestoreStream(LaunchingOperator, AskingOperator):
    """Start `stream` from `snapshot`: an id, a savepoint's name, the URL of its folder, or None (as the rules choose).

    What would refuse it is looked for before anything is touched: such a restore stops nothing. A stream that runs is
    then stopped, with a savepoint unless `savepoint_first` is false; if what is there then cannot be restored, it is
    started again as it ran. With `parallelism` it goes on with so many subtasks, and the job is deployed with that.
    """

    template_fields: Sequence[str] = (
        *LaunchingOperator.template_fields,
        "snapshot",
        "savepoint_first",
        "parallelism",
        "fall_back",
        "accept_duplicates",
        "allow_non_restored_state",
        "claim_mode",
    )

    def __init__(
        self,
        *,
        snapshot: int | str | None = None,
        savepoint_first: bool | str = True,
        parallelism: int | str | None = None,
        fall_back: bool | str | None = None,
        accept_duplicates: bool | str = False,
        allow_non_restored_state: bool | str = False,
        claim_mode: str = "no-claim",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot = snapshot
        self.savepoint_first = savepoint_first
        self.parallelism = parallelism
        self.fall_back = fall_back
        self.accept_duplicates = accept_duplicates
        self.allow_non_restored_state = allow_non_restored_state
        self.claim_mode = claim_mode

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        """What an earlier try has begun is gone on with: a stop that was asked for is not checked a second time."""
        me = TaskIdentity.of(context)
        control, until = self.control(context), self.until()
        own = self.own_live_generation(control, me.by)
        if own is not None:
            self.follow(own, until)
        status = control.status(self.stream, confirm=True)
        stop, keep = self._stop_of(me, status.generation), None
        asked = control.is_asked(self.stream, stop)
        if not asked:
            keep = control.check_restore(self.stream, **self._choice(), savepoint_first=self._with_savepoint())
            status = control.status(self.stream, confirm=True)
        if status.live:
            self._stop_first(control, stop, until, keep)
        self._start(control, until, stop if asked or status.live else None)

    @told_to_airflow()
    def stopped(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Called when the stop was answered."""
        control = self.control(context)
        self.answer_of(control, event)
        self._start(control, event["asked"]["until"], RequestId(event["asked"]["request"]))

    def failed(self, control: Control, me: TaskIdentity, told: LaunchFailed) -> HeadgateError:
        """The driver did not come up: a stream that was stopped for it goes on as it ran before."""
        failed = first = self.catalogue().newest_generation
        while first is not None and first.by != me.by and first.replaces is not None:
            first = self.catalogue().generation(first.replaces)  # a recovery of it has failed, too
        if failed is None or first is None:
            return super().failed(control, me, told)
        before = [each.generation for each in self.catalogue().generations if each.generation < first.generation]
        error = control.take_back(self.stream, self._stop_of(me, max(before, default=None)), told, wait=False)
        if control.status(self.stream).generation == failed.generation:
            super().failed(control, me, told)
        return error

    def _stop_of(self, me: TaskIdentity, generation: Generation | None) -> RequestId:
        """The id of this task's request to stop that generation."""
        return me.request(f"{_STOP}-g{generation or 0}", StreamName(self.stream))

    def _stop_first(self, control: Control, stop: RequestId, until: float, keep: CheckpointId | None) -> None:
        """Ask for the stop and wait; returns if the stream has ended meanwhile."""
        try:
            asked = control.stop(
                self.stream, savepoint=self._with_savepoint(), id=stop, wait=False, keep=keep, to_restore=True
            )
        except StreamNotRunning as error:
            self.log.warning("it ended meanwhile: %s", error)
            return
        if asked.request is not None:
            self.await_answer(asked.request.id, "stopped", until)

    def _start(self, control: Control, until: float, stopped_by: RequestId | None) -> None:
        launched = control.restore(
            self.stream, **self._choice(), savepoint_first=False, stopped_by=stopped_by, wait=False
        )
        self.log.info("launched generation %d: %s", launched.generation, launched.decision.reason)
        self.follow(launched.generation, until)

    def _with_savepoint(self) -> bool:
        return flag(self.savepoint_first, "savepoint_first")

    def _choice(self) -> dict[str, Any]:
        return {
            "snapshot": named_snapshot(self.snapshot),
            "fall_back": optional_flag(self.fall_back, "fall_back"),
            "accept_duplicates": flag(self.accept_duplicates, "accept_duplicates"),
            "allow_non_restored_state": flag(self.allow_non_restored_state, "allow_non_restored_state"),
            "claim_mode": claim_mode_named(self.claim_mode),
            "parallelism": optional_number(self.parallelism, "parallelism"),
        }


def named_snapshot(value: int | str | None) -> CheckpointId | SavepointName | Located | None:
    """What a person typed: a number is an id, what has a slash a place, anything else a savepoint's name."""
    text = optional_text(value)
    return snapshot_named(text) if text is not None else None
