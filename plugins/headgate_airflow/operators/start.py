"""StartStream: starts a stream by the rules of restore, and waits until it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.fleet import declared_stream, need_declared
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.base import flag, optional_flag
from headgate_airflow.operators.launching import LaunchingOperator
from headgate_control import Control
from headgate_control.fleet_file import drift


class StartStream(LaunchingOperator):
    """Start `stream`; with `deploy`, what streams.yaml says of it is deployed first.

    A retry or a clear finds the generation that an earlier try launched and follows it. A stream that somebody else
    runs is left alone: the task fails and says who, where and since when.
    """

    template_fields: Sequence[str] = (
        *LaunchingOperator.template_fields,
        "deploy",
        "fresh",
        "fall_back",
        "accept_duplicates",
        "allow_non_restored_state",
    )

    def __init__(
        self,
        *,
        deploy: bool | str = False,
        fresh: bool | str = False,
        fall_back: bool | str | None = None,
        accept_duplicates: bool | str = False,
        allow_non_restored_state: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deploy = deploy
        self.fresh = fresh
        self.fall_back = fall_back
        self.accept_duplicates = accept_duplicates
        self.allow_non_restored_state = allow_non_restored_state

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        by = TaskIdentity.of(context).by
        control = self.control(context)
        if flag(self.deploy, "deploy"):
            deploy_declared(control, self.stream, self.streams_file)
        else:
            self._tell_of_drift()
        own = self.own_live_generation(control, by)
        if own is None:
            launched = control.start(
                self.stream,
                fresh=flag(self.fresh, "fresh"),
                fall_back=optional_flag(self.fall_back, "fall_back"),
                accept_duplicates=flag(self.accept_duplicates, "accept_duplicates"),
                allow_non_restored_state=flag(self.allow_non_restored_state, "allow_non_restored_state"),
                wait=False,
            )
            for warning in launched.warnings:
                self.log.warning("%s", warning)
            self.log.info("launched generation %d: %s", launched.generation, launched.decision.reason)
            own = launched.generation
        self.follow(own, self.until())

    def _tell_of_drift(self) -> None:
        """What runs is what was deployed: say where streams.yaml has gone on since."""
        declared = declared_stream(self.stream, self.streams_file)
        for difference in drift(declared, self.catalogue().deployed) if declared is not None else ():
            self.log.warning("not deployed yet: %s", difference)


def deploy_declared(control: Control, stream: str, streams_file: str | None) -> None:
    """Deploy `stream` as streams.yaml has it. Repeating it changes nothing."""
    declared = need_declared(stream, streams_file)
    control.deploy(stream, declared.job, declared.settings, directory=declared.directory)
