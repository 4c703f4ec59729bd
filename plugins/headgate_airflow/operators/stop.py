"""StopStream: stops a stream with a last savepoint, at the next barrier, or at once."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.following import GONE_WRONG
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.asking import AskingOperator, snapshot_of
from headgate_airflow.operators.base import optional_text
from headgate_contract.errors import BadInput, StreamNotRunning
from headgate_contract.ids import StreamName
from headgate_contract.snapshot import SnapshotKind
from headgate_control import Asked, Condition, Control


class HowToStop(enum.Enum):
    """The ways to end a stream."""

    SAVEPOINT = "savepoint"
    DRAIN = "drain"
    CHECKPOINT = "checkpoint"
    CANCEL = "cancel"


_WITH_SAVEPOINT = (HowToStop.SAVEPOINT, HowToStop.DRAIN)


class StopStream(AskingOperator):
    """Stop `stream`; from the first moment nobody restarts it. A stream that is stopped already is success,
    but not for a drain: who has stopped has not been drained.

    `how` is savepoint (a last one, called `name` or by the moment, in
    `target_directory` or below the root), drain (the same, and the operators finish
    before it: for a stream that is not to go on), checkpoint (at the next barrier) or
    cancel (now).
    """

    template_fields: Sequence[str] = (*AskingOperator.template_fields, "how", "name", "target_directory")

    def __init__(
        self,
        *,
        how: str | HowToStop = HowToStop.SAVEPOINT,
        name: str | None = None,
        target_directory: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.how = how.value if isinstance(how, HowToStop) else how
        self.name = name
        self.target_directory = target_directory

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        control = self.control(context)
        asked = self._ask(control, TaskIdentity.of(context))
        if asked is None or asked.request is None:
            return self._result(control, asked.note if asked is not None else "it had stopped already")
        return self.await_answer(asked.request.id, "answered", self.until())

    @told_to_airflow()
    def answered(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Called when the trigger has fired."""
        control = self.control(context)
        if event["outcome"] == GONE_WRONG and self._stopped_all_the_same(control):
            return self._result(control, str(event.get("why", "")))
        answer = self.answer_of(control, event)
        taken = snapshot_of(control, self.stream, answer)
        return self._result(control, "") | ({"snapshot": int(taken.id), "folder": taken.where} if taken else {})

    def _ask(self, control: Control, me: TaskIdentity) -> Asked | None:
        """Leave the request, or find the first one; None for a stream that stopped with a savepoint before."""
        how = how_to_stop(self.how)
        if how not in _WITH_SAVEPOINT:
            self._refuse_what_is_for_a_savepoint(how)
        request = me.request(how.value, StreamName(self.stream))
        if how is HowToStop.CANCEL:
            return control.cancel(self.stream, id=request, wait=False)
        if how is HowToStop.CHECKPOINT:
            return control.stop(self.stream, id=request, wait=False)
        try:
            return control.stop(
                self.stream,
                savepoint=optional_text(self.name) or True,
                drain=how is HowToStop.DRAIN,
                target_directory=optional_text(self.target_directory),
                id=request,
                wait=False,
            )
        except StreamNotRunning:
            status = control.status(self.stream)
            newest = status.newest_snapshot
            if how is HowToStop.DRAIN:
                raise  # who has stopped has not been drained
            if status.condition is Condition.STOPPED and newest and newest.kind is SnapshotKind.SAVEPOINT:
                return None
            raise

    def _refuse_what_is_for_a_savepoint(self, how: HowToStop) -> None:
        for argument in ("name", "target_directory"):
            if optional_text(getattr(self, argument)) is not None:
                ways = " or ".join(f"how={way.value}" for way in _WITH_SAVEPOINT)
                hint = f"choose {ways}, or leave {argument} empty"
                raise BadInput(f"{argument} is for a savepoint, and how is {how.value}", hint=hint)

    def _stopped_all_the_same(self, control: Control) -> bool:
        """Its driver is gone without an answer and nobody restarts it, which is all that this stop wanted."""
        wants_savepoint = how_to_stop(self.how) in _WITH_SAVEPOINT
        return not wants_savepoint and control.status(self.stream).condition is Condition.STOPPED

    def _result(self, control: Control, note: str) -> dict[str, Any]:
        status = control.status(self.stream)
        newest = status.newest_snapshot
        self.log.info("stream %s: %s%s", self.stream, status.text, f" ({note})" if note else "")
        return {
            "stream": self.stream,
            "generation": int(status.generation) if status.generation is not None else None,
            "condition": status.condition.value,
            "snapshot": int(newest.id) if newest is not None else None,
            "folder": newest.where if newest is not None else None,
            "note": note,
        }


def how_to_stop(text: str) -> HowToStop:
    """The way that `text` names. Raises BadInput with those that there are."""
    try:
        return HowToStop(text)
    except ValueError:
        allowed = ", ".join(way.value for way in HowToStop)
        raise BadInput(f"how is {text!r}", hint=f"allowed are {allowed}") from None
