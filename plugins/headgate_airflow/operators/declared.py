"""CheckDeclared: fails for as long as something is at work on the fleet's roots that streams.yaml does not declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from headgate_airflow.all_roots import on_all_roots
from headgate_airflow.failures import told_to_airflow
from headgate_airflow.fleet import declared_fleet
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.triggers.lost import about_undeclared
from headgate_contract.errors import HeadgateError, StorageUnreachable


class CheckDeclared(BaseOperator):
    """Fail, naming them, if streams are at work on a root of the fleet that streams.yaml neither declares nor ignores.

    A root that the file has named once, of which nothing is declared any more, and that does not answer fails it too,
    after its retries. It changes nothing: those streams are watched and recovered as before.
    """

    template_fields: Sequence[str] = ("conn_id", "streams_file")

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        streams_file: str | Path | None = None,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        root_timeout: timedelta = timedelta(seconds=60),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.conn_id = conn_id
        self.streams_file = str(streams_file) if streams_file is not None else None
        self.root_timeout = root_timeout

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> None:
        fleet = declared_fleet(self.streams_file)
        if not fleet.file.is_read:
            raise AirflowSkipException(f"nothing is known of it: {fleet.file.mistakes[0].at(fleet.file.path)}")
        found: list[str] = []
        gone: list[str] = []
        work = partial(self._undeclared_on, not_told=fleet.not_told)
        for root, _, told in on_all_roots(fleet, work, self.root_timeout):
            try:
                found += told.result()
            except (HeadgateError, OSError) as error:
                if root in fleet.former_roots:
                    gone.append(about_former(root, error))
                else:  # its own streams are told of where they cannot be recovered
                    self.log.warning("%s cannot be looked at: %s", root, error)
        if found:
            lines = [f"{fleet.file.path} does not declare all that is there:", *found, *gone]
            raise AirflowFailException("\n".join(lines))
        if gone:  # it may answer yet: Airflow tries the task again before it fails
            raise StorageUnreachable("\n".join(gone))

    def _undeclared_on(
        self, root: str | None, streams: Sequence[str], answered: Event, *, not_told: frozenset[str]
    ) -> list[str]:
        control = HeadgateHook(self.conn_id or None, root=root).control(by="airflow")
        return [about_undeclared(status, root) for status in control.undeclared([*streams, *not_told])]


def about_former(root: str | None, error: Exception) -> str:
    """What a person should know of a root that nothing names any more."""
    why = error.what if isinstance(error, HeadgateError) else error
    return (
        f"the root {root}, which streams.yaml does not name any more, cannot be looked at: {why}; bring it back, or if "
        "nothing of yours is there, write it below `ignore:` in that file"
    )
