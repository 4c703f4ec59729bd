"""Judges how a stream is from its logs, its newest heartbeat and what this host sees. Pure: facts in, judgement out.

No two machines' clocks are compared: ages are by the storage's own clock, and silence only counts once the heartbeat
has also stayed the same while the judge itself was looking.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate_contract.catalogue import Catalogue
from headgate_contract.heartbeats import Seen, StreamState
from headgate_contract.records import GenerationStarted, StopWanted
from headgate_contract.settings import Settings
from headgate_control.outcomes import GAVE_UP, Condition, ProcessSign


@dataclass(frozen=True, kw_only=True)
class LivenessFacts:
    """Everything that the judgement rests on."""

    catalogue: Catalogue
    seen: Seen | None
    """The heartbeat of the newest generation."""
    process: ProcessSign
    claimed_age_s: float
    """Since the newest generation was claimed, by the storage's own clock."""
    watched_s: float
    """For how long the judge itself has seen the sign of life unchanged, by its own steady clock."""
    stop_wanted: StopWanted | None
    """The wish to stop the newest generation, if one stands."""
    settings: Settings
    """Of the newest generation."""


@dataclass(frozen=True, slots=True)
class Judgement:
    condition: Condition
    why: str


_OF_STATE = {
    StreamState.LAUNCHED: Condition.LAUNCHED,
    StreamState.RESTORING: Condition.RESTORING,
    StreamState.RUNNING: Condition.RUNNING,
    StreamState.STOPPING: Condition.STOPPING,
}


_ENDING_S = 300
"""How long a driver may take to end what has stood still for too long, or itself: more than it ever should."""


def confirm_after_s(settings: Settings) -> float:
    """For how long a silent heartbeat must be watched until its silence counts: two of its intervals."""
    seconds: float = settings["heartbeat.interval"].seconds
    return 2 * seconds


def judge(facts: LivenessFacts) -> Judgement:
    """How the stream is, and what that rests on."""
    newest = facts.catalogue.newest_generation
    if newest is None:
        return Judgement(Condition.NEVER_STARTED, "it was never started")
    ended = _ended_in_the_log(facts.catalogue, newest) or _ended(facts, newest)
    if ended is not None:
        return ended
    allowed = _allowed_silence_s(facts)
    silent = _silence_s(facts)
    if silent > allowed:
        return _silent(facts, silent, allowed, newest)
    beat = facts.seen.heartbeat if facts.seen is not None else None
    if facts.seen is None:
        return Judgement(Condition.LAUNCHED, f"generation {newest.generation} has given no sign of life yet")
    if beat is None:
        return Judgement(Condition.SILENT, f"the heartbeat cannot be read: {facts.seen.fault}")
    why = f"generation {newest.generation} is {beat.state.value}{f' ({beat.cause})' if beat.cause else ''}"
    worst = max(beat.standing, key=lambda each: each.overdue_ms, default=None)
    if worst is not None and worst.overdue_ms > 1000 * _ENDING_S:
        return _gone(facts, f"{why} and was to end itself, but has not: no progress: {worst}")
    still = f", but makes no progress: {beat.standing[0]}" if beat.standing else ""
    return Judgement(_OF_STATE[beat.state], f"{why}{still}")


def _ended_in_the_log(catalogue: Catalogue, newest: GenerationStarted) -> Judgement | None:
    stopped, repaired = catalogue.stopped, catalogue.repaired
    if stopped is not None:
        return Judgement(Condition.STOPPED, f"generation {newest.generation} stopped in good order: {stopped.reason}")
    if repaired is not None:
        why = f"generation {newest.generation} ended with a repair of its log by {repaired.by}: {repaired.reason}"
        return Judgement(Condition.STOPPED, why)
    return None


def _ended(facts: LivenessFacts, newest: GenerationStarted) -> Judgement | None:
    """The judgement if the newest generation is known to have ended, though the log does not say so."""
    beat = facts.seen.heartbeat if facts.seen is not None else None
    if beat is not None and beat.state is StreamState.FAILED:
        return Judgement(Condition.FAILED, f"generation {newest.generation} failed: {beat.cause or 'it gave no cause'}")
    if beat is not None and beat.state in (StreamState.STOPPED, StreamState.FENCED):
        cause = f" ({beat.cause})" if beat.cause else ""
        return _gone(
            facts, f"generation {newest.generation} says that it is {beat.state.value}{cause}, the log does not"
        )
    if facts.process is ProcessSign.GONE:
        where = f"process {beat.process.pid} on {beat.process.host}" if beat and beat.process else "its process"
        return _gone(facts, f"{where} of generation {newest.generation} is gone")
    return None


def _gone(facts: LivenessFacts, why: str) -> Judgement:
    wanted = facts.stop_wanted
    if wanted is not None and wanted.reason.startswith(GAVE_UP):
        return Judgement(Condition.FAILED, wanted.reason)
    if wanted is not None:
        return Judgement(Condition.STOPPED, f"{why}; {wanted.by} wanted it stopped, so it is not restarted")
    return Judgement(Condition.LOST, why)


def _silence_s(facts: LivenessFacts) -> float:
    """What is damaged is no sign of life, however new: it counts for how long nothing else was seen."""
    if facts.seen is None:
        return facts.claimed_age_s
    return facts.seen.age_s if facts.seen.is_sign else max(facts.seen.age_s, facts.watched_s)


def _allowed_silence_s(facts: LivenessFacts) -> float:
    """A driver that has not said a word of its own yet is still starting its interpreter and Spark."""
    beat = facts.seen.heartbeat if facts.seen is not None else None
    starting = facts.seen is None or (beat is not None and beat.state is StreamState.LAUNCHED)
    seconds: float = facts.settings["headgate.startup-timeout" if starting else "heartbeat.timeout"].seconds
    return seconds


def _silent(facts: LivenessFacts, silent_s: float, allowed_s: float, newest: GenerationStarted) -> Judgement:
    fault = f"; its heartbeat cannot be read: {facts.seen.fault}" if facts.seen is not None and facts.seen.fault else ""
    why = (
        f"generation {newest.generation} on {newest.host} has given no sign of life for {silent_s:.0f} s, "
        f"{allowed_s:g} s are allowed{fault}"
    )
    if facts.watched_s >= confirm_after_s(facts.settings):
        return _gone(facts, why)
    return Judgement(Condition.SILENT, why)
