"""Tells people what a start would do and why, as explain.py has found it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headgate_contract.id_ranges import IdRanges
from headgate_contract.restore import Refuse, RestoreFrom, Rollback, SinkRollback
from headgate_control.outcomes import Explanation
from headgate_control.telling import counted, size, took


def as_text(explanation: Explanation) -> str:
    """The explanation for people."""
    decision = explanation.decision
    lines = [f"stream {explanation.stream}, next generation {explanation.next_generation}, {_subtasks(explanation)}"]
    match decision:
        case RestoreFrom(snapshot, reason):
            lines += [f"would restore {snapshot} of generation {snapshot.generation}", f"  because: {reason}"]
            lines.append(f"  checked: {explanation.checked.get(snapshot.where, 'not looked at')}")
            if explanation.sharing is not None and explanation.sharing.shared:
                lines.append(f"  {snapshot} {explanation.sharing.told}: a damaged file takes all of them")
        case Refuse(reason):
            lines += ["would refuse to start", f"  because: {reason}"]
        case _:
            lines += ["would start without state", f"  because: {decision.reason}"]
    if decision.rejected:
        lines.append("not taken:")
        lines += [f"  {rejected.snapshot}: {rejected.why}" for rejected in decision.rejected]
    if isinstance(decision, Refuse):
        lines += _alternatives(decision, explanation.checked)
    if decision.rollbacks:
        lines.append("what sinks published since then:")
        lines += [f"  {_rollback(rollback)}" for rollback in decision.rollbacks]
    if not isinstance(decision, Refuse):
        lines.append(_prediction(explanation))
    lines += [f"warning: {warning}" for warning in explanation.warnings]
    return "\n".join(lines)


def _subtasks(explanation: Explanation) -> str:
    number, deployed = explanation.parallelism, explanation.deployed_parallelism
    asked = f", as was asked; {deployed} {'is' if deployed == 1 else 'are'} deployed" if number != deployed else ""
    return f"with {number} subtask{'s'[: number != 1]}{asked}"


def _prediction(explanation: Explanation) -> str:
    found = explanation.prediction
    if found is None:
        return "how long it would take: no start was measured yet that tells"
    return (
        f"would take about {took(found.expected_ms)} from its claim to running: redeploy {took(found.redeploy_ms)}, "
        f"load state {took(found.load_state_ms)} ({size(found.state_bytes)}), "
        f"reset source {took(found.reset_source_ms)}, reset sink {took(found.reset_sink_ms)}\n"
        f"  which rests on {counted(found.launches, 'launch', 'launches')} and "
        f"{counted(found.rests_on - found.launches, 'restart')} in a driver: medians (redeploy: of the launches), "
        "and for the state what a byte has taken"
    )


def _alternatives(decision: Refuse, checked: Mapping[str, str]) -> list[str]:
    """What could be named instead, whether it is good, and what it would cost."""
    costs = {cost.snapshot.id: cost.rollbacks for cost in decision.costs}
    lines = ["could be restored instead (restore --from ID):"] if decision.alternatives else []
    for ref in decision.alternatives:
        lines.append(f"  {ref}: {checked.get(ref.where, 'not looked at')}")
        lines += [f"    {_rollback(rollback)}" for rollback in costs.get(ref.id, ())]
    return lines


def _rollback(rollback: SinkRollback) -> str:
    return f"{rollback.sink}: {_ROLLBACK_TEXT[rollback.action]} ({_groups(rollback.ids)})"


_ROLLBACK_TEXT = {
    Rollback.RETRACT: "is taken back",
    Rollback.OVERWRITE: "stays until it is overwritten by the same keys",
    Rollback.DUPLICATES: "stays, and will be published again: duplicates for certain",
}


def _groups(groups: IdRanges) -> str:
    if len(groups) == 1:
        return f"of checkpoint {groups.highest}"
    return f"of checkpoints {groups.spans[0].first} to {groups.highest}, {len(groups)} in all"
