"""Savepoint: has a savepoint taken, and reports it as an asset event with its id, folder and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from headgate_airflow.assets import ANY_SAVEPOINT, savepoint_of
from headgate_airflow.failures import told_to_airflow
from headgate_airflow.following import described_snapshot
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.asking import AskingOperator, snapshot_of
from headgate_airflow.operators.base import flag, optional_text
from headgate_contract.errors import NotARoot, NotFound, ObjectMissing, StorageUnreachable, StreamUnknown
from headgate_contract.ids import StreamName
from headgate_contract.paths import METADATA
from headgate_contract.snapshot import SavepointOrigin, SnapshotMetadata, SnapshotRef, decode_metadata
from headgate_contract.store import ObjectStore
from headgate_control import Condition, Control

_AT_REST = (Condition.STOPPED, Condition.NEVER_STARTED)


class Savepoint(AskingOperator):
    """Take a savepoint of `stream`, called `name` or by the moment, in `target_directory` or below the root.

    `scheduled` marks it as a schedule's, which a savepoint policy may expire; a person's never expires.
    `skip_at_rest` skips the task while the stream is stopped on purpose, and before its first start. Returns id, name,
    folder, generation and size, and its asset event has the same.
    """

    template_fields: Sequence[str] = (
        *AskingOperator.template_fields,
        "name",
        "scheduled",
        "skip_at_rest",
        "target_directory",
    )

    def __init__(
        self,
        *,
        stream: str,
        name: str | None = None,
        scheduled: bool | str = False,
        skip_at_rest: bool | str = False,
        target_directory: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("outlets", [ANY_SAVEPOINT if "{{" in stream else savepoint_of(stream)])
        super().__init__(stream=stream, **kwargs)
        self.name = name
        self.scheduled = scheduled
        self.skip_at_rest = skip_at_rest
        self.target_directory = target_directory

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        control = self.control(context)
        self._skip_at_rest(control)
        asked = control.savepoint(
            self.stream,
            optional_text(self.name),
            target_directory=optional_text(self.target_directory),
            origin=SavepointOrigin.SCHEDULE if flag(self.scheduled, "scheduled") else SavepointOrigin.PERSON,
            id=TaskIdentity.of(context).request("savepoint", StreamName(self.stream)),
            wait=False,
        )
        assert asked.request is not None
        self.await_answer(asked.request.id, "answered", self.until())

    @told_to_airflow()
    def answered(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Called when the trigger has fired."""
        control = self.control(context)
        taken = snapshot_of(control, self.stream, self.answer_of(control, event))
        if taken is None:
            raise NotFound(f"stream {self.stream} took a savepoint, but it is not retained")
        result = self.described(taken)
        self.log.info("stream %s has %s in %s", self.stream, taken, taken.where)
        self._emit(context, result)
        return result

    def described(self, taken: SnapshotRef) -> dict[str, Any]:
        """What the task returns, and what the asset event carries.

        Size, records and watermark are None where only the driver sees the directory: it was taken all the same.
        """
        storage = self.hook.storage
        found = {**described_snapshot(self.stream, taken), "root": storage.root}
        try:
            metadata = self._metadata(storage.open(), taken)
        except (ObjectMissing, StorageUnreachable) as error:
            if taken.location is None:
                raise
            self.log.warning("%s was taken, but %s cannot be seen from here: %s", taken, taken.where, error)
            return found | {"size": None, "records": None, "watermark_ms": None}
        return found | {
            "size": taken.metadata_length + sum(handle.length for handle in metadata.handles()),
            "records": metadata.records,
            "watermark_ms": metadata.watermark_ms,
        }

    def _metadata(self, root: ObjectStore, taken: SnapshotRef) -> SnapshotMetadata:
        where = f"{taken.folder}/{METADATA}"
        return decode_metadata(taken.store(root).read(where), taken, where)

    def _skip_at_rest(self, control: Control) -> None:
        if not flag(self.skip_at_rest, "skip_at_rest"):
            return
        try:
            status = control.status(self.stream)
        except (StreamUnknown, NotARoot) as error:
            raise AirflowSkipException(f"stream {self.stream} was never started: {error}") from error
        if status.condition in _AT_REST:
            raise AirflowSkipException(f"stream {self.stream} is at rest: {status.text}")

    def _emit(self, context: Mapping[str, Any], result: dict[str, Any]) -> None:
        """Attach the event to whichever outlet this task has; repeated by a clear, its readers go by the id."""
        asset = savepoint_of(self.stream)
        events = context["outlet_events"]
        if ANY_SAVEPOINT in self.outlets:
            events[ANY_SAVEPOINT].add(asset, extra=result)
        elif asset in self.outlets:
            events[asset].extra = result
