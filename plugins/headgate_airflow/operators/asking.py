"""Asking a driver for something and waiting for its answer: shared by Savepoint, StopStream and RestoreStream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from headgate_airflow.operators.base import StreamOperator
from headgate_airflow.triggers.answer import AnswerTrigger
from headgate_contract.errors import RequestFailed
from headgate_contract.ids import CheckpointId, RequestId
from headgate_contract.mailbox import Answer, Outcome
from headgate_contract.snapshot import SnapshotRef
from headgate_control import Asked, Control


class AskingOperator(StreamOperator):
    """Leaves one request for the stream's driver, whose id is the task's identity, and waits for the answer.

    A retry finds the first request and its answer, and only a request that failed is asked anew. A request that is
    under way cannot be called back: killing the task leaves it to the driver.
    """

    def await_answer(self, request: RequestId, method_name: str, until: float) -> NoReturn:
        """Defer until `request` is answered; then `method_name` is called with the event."""
        self.log.info("waiting for stream %s to answer request %s", self.stream, request)
        self.wait_with(AnswerTrigger, method_name, until, request=str(request))

    def answer_of(self, control: Control, event: Mapping[str, Any]) -> Answer:
        """The answer, read from storage. Raises RequestFailed, or says what the trigger said when there is none."""
        request = event["asked"]["request"]
        answer = control.answer(self.stream, RequestId(request))
        if answer is None:
            raise AirflowException(str(event.get("why", event)))
        if answer.outcome is Outcome.FAILED:
            raise RequestFailed(f"stream {self.stream} could not carry out request {request}: {answer.why}")
        return answer


def snapshot_of(control: Control, stream: str, asked: Asked | Answer) -> SnapshotRef | None:
    """The snapshot that an answer tells of, if it is retained."""
    answer = asked.answer if isinstance(asked, Asked) else asked
    found = answer.result.get("snapshot") if answer is not None else None
    if not isinstance(found, int):
        return None
    return next((ref for ref in control.snapshots(stream) if ref.id == CheckpointId(found)), None)
