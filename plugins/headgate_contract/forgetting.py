"""Deletes old requests with their answers, and old events: what a look at them costs does not grow with a stream's age.

By the storage's own clock and by number, so that anybody may do it, at any time and several at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headgate_contract.ids import StreamName
from headgate_contract.paths import StreamPaths, what_of
from headgate_contract.store import ObjectInfo, ObjectStore

ANSWERED_KEPT = 500
"""So many requests that are answered stay, the last answered first."""
ANSWERED_KEPT_S = 24 * 3600.0
"""And each for so long: whoever asks again under its id finds the answer, and nobody waits for one for longer."""
EVENTS_KEPT = 10_000
"""So many events of checkpoints stay, the newest ones, and so many of everything else."""
FORGOTTEN_AT_ONCE = 10_000
"""No look deletes more of either: those of a stream that was never looked at go by and by."""
_OFTEN = "checkpoint"
"""What most events tell of: they must not displace those of what people did."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request with all its ordinals, and what there is of them."""

    requests: dict[str, ObjectInfo]
    answers: dict[str, ObjectInfo]

    @property
    def is_answered(self) -> bool:
        return self.requests.keys() <= self.answers.keys()

    @property
    def answered_at(self) -> float:
        """When it was last answered, by the storage's clock."""
        return max(info.modified for info in self.answers.values())


def forget_requests(store: ObjectStore, stream: StreamName, told: Collection[str]) -> int:
    """Delete the requests that were answered long ago, with their answers; how many files.

    A request goes with all its ordinals or not at all, and not while the log tells of it (`told`): none is carried out
    a second time under an id that it had, and a stop that failed does not stand again. Each request goes before its
    answer does, so that one whose deletion is broken off never looks unanswered.
    """
    paths = StreamPaths(stream)
    asked = _by_id(_named(store, paths.requests), _named(store, paths.answers))
    answered = sorted(
        (each for each in asked.values() if each.is_answered), key=lambda each: each.answered_at, reverse=True
    )
    if len(answered) <= ANSWERED_KEPT:
        return 0
    before, logged = store.now() - ANSWERED_KEPT_S, {_base(id) for id in told}
    over = [each for each in answered[ANSWERED_KEPT:] if each.answered_at < before]
    old = [each for each in over if logged.isdisjoint(map(_base, each.answers))][-FORGOTTEN_AT_ONCE:]
    requests = [info.path for each in old for info in each.requests.values()]
    answers = [info.path for each in old for info in each.answers.values()]
    store.delete_many(requests)
    store.delete_many(answers)
    return len(requests) + len(answers)


def forget_events(store: ObjectStore, stream: StreamName) -> int:
    """Delete the events that so many newer ones have followed; how many."""
    often: list[str] = []
    others: list[str] = []
    for info in store.list(StreamPaths(stream).history):
        (often if what_of(info.path) == _OFTEN else others).append(info.path)
    old = [*_all_but_newest(others), *_all_but_newest(often)][:FORGOTTEN_AT_ONCE]
    store.delete_many(old)
    return len(old)


def _all_but_newest(paths: list[str]) -> list[str]:
    """By name: so events are in the order of the log."""
    return sorted(paths)[:-EVENTS_KEPT]


def _named(store: ObjectStore, folder: str) -> dict[str, ObjectInfo]:
    return {info.path.removeprefix(f"{folder}/").removesuffix(".json"): info for info in store.list(folder)}


def _by_id(requests: Mapping[str, ObjectInfo], answers: Mapping[str, ObjectInfo]) -> dict[str, _Asked]:
    found: dict[str, _Asked] = {}
    for name, info in requests.items():
        found.setdefault(_base(name), _Asked({}, {})).requests[name] = info
    for name, info in answers.items():
        found.setdefault(_base(name), _Asked({}, {})).answers[name] = info
    return found


def _base(id: str) -> str:
    """The id without its ordinal."""
    return id.partition("~")[0]
