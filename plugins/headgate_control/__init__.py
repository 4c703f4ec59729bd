"""The control plane without Airflow: deploy, launch, ask, recover, explain; `Control` is its door."""

from __future__ import annotations

from headgate_contract.restart import GiveUp, RestartAfter
from headgate_control.control import Control
from headgate_control.looking import due
from headgate_control.outcomes import (
    Asked,
    Condition,
    Explanation,
    Launched,
    LogTail,
    Lost,
    NotNeeded,
    StreamStatus,
)

__all__ = [
    "Asked",
    "Condition",
    "Control",
    "Explanation",
    "GiveUp",
    "Launched",
    "LogTail",
    "Lost",
    "NotNeeded",
    "RestartAfter",
    "StreamStatus",
    "due",
]
