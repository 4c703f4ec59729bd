"""A step over two inputs: for each of them an operator, and one state for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.step.operators import (
    FinishFunction,
    ProcessFunction,
    ProcessOperator,
)
from headgate_contract.errors import JobInvalid
from headgate_contract.operator_state import OperatorStateKind


@dataclass(frozen=True)
class ConnectedOperator:
    """What the step does with each of its two inputs."""

    first: ProcessOperator
    second: ProcessOperator
    broadcast: bool
    """The second input belongs to no key."""

    @classmethod
    def of(
        cls,
        uid: str,
        functions: tuple[ProcessFunction, ProcessFunction],
        output: pa.Schema,
        state: Mapping[str, pa.Schema],
        operator_state: Mapping[str, str] | None,
        finish: FinishFunction | None,
        *,
        broadcast: bool,
    ) -> ConnectedOperator:
        first, second = (ProcessOperator.of(uid, each, output, state, operator_state, finish) for each in functions)
        if broadcast and OperatorStateKind.BROADCAST not in first.operator_states.values():
            raise JobInvalid(
                f"process {uid!r} has an input that is broadcast and no operator state of kind broadcast",
                hint="what it is told goes there: operator_state={'rules': 'broadcast'}",
            )
        return cls(first, second, broadcast)

    def port(self, number: int, stored: tuple[str, ...]) -> ProcessOperator:
        """The operator of one input; `stored` are the names of the first one's keys, under which both are stored."""
        return replace(self.second, stored=stored) if number else self.first
