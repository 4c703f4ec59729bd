"""RestoreStream: starts a stream from a snapshot that was chosen, stopping it first if it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.asking import AskingOperator
from headgate_airflow.operators.base import flag, optional_flag, optional_number, optional_text
from headgate_airflow.operators.launching import LaunchingOperator
from headgate_contract.errors import RestoreRefused, StreamNotRunning
from headgate_contract.ids import CheckpointId, SavepointName, StreamName
from headgate_contract.restore import Located, Refuse
from headgate_control import Control
from headgate_control.locating import claim_mode_named, snapshot_named


class RestoreStream(LaunchingOperator, AskingOperator):
    """Start `stream` from `snapshot`: an id, a savepoint's name, the URL of its folder, or None (as the rules choose).

    What would be restored is decided before anything is touched: a restore that would be refused stops nothing. A
    stream that runs is then stopped, with a savepoint unless `savepoint_first` is false. With `parallelism` it goes on
    with so many subtasks, and the same job is deployed with that.
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
        me = TaskIdentity.of(context)
        control = self.control(context)
        until = self.until()
        own = self.own_live_generation(control, me.by)
        if own is not None:
            self.follow(own, until)
        restores = self._check(control)
        if control.status(self.stream, confirm=True).live:
            self._stop_first(control, me, until, restores)
        self._start(control, until)

    @told_to_airflow()
    def stopped(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Called when the stop was answered."""
        control = self.control(context)
        self.answer_of(control, event)
        self._start(control, event["asked"]["until"])

    def _check(self, control: Control) -> CheckpointId | None:
        """The snapshot that somebody named, if it can be restored."""
        explained = control.explain(self.stream, **self._choice())
        if isinstance(explained.decision, Refuse):
            raise RestoreRefused(f"stream {self.stream} is not restored: {explained.decision.reason}")
        self.log.info("stream %s: %s", self.stream, explained.decision.reason)
        return explained.keeps if named_snapshot(self.snapshot) is not None else None

    def _stop_first(self, control: Control, me: TaskIdentity, until: float, keep: CheckpointId | None) -> None:
        savepoint = flag(self.savepoint_first, "savepoint_first")
        request = me.request("stop-to-restore", StreamName(self.stream))
        try:
            asked = control.stop(self.stream, savepoint=savepoint, id=request, wait=False, keep=keep)
        except StreamNotRunning as error:
            self.log.warning("it ended meanwhile: %s", error)
            return
        if asked.request is not None:
            self.await_answer(asked.request.id, "stopped", until)

    def _start(self, control: Control, until: float) -> None:
        launched = control.restore(self.stream, **self._choice(), savepoint_first=False, wait=False)
        self.log.info("launched generation %d: %s", launched.generation, launched.decision.reason)
        self.follow(launched.generation, until)

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
