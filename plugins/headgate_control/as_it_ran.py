"""Starts a stream again as it ran before a restore that stopped it and then came to nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import (
    BadInput,
    Conflict,
    HeadgateError,
    LaunchFailed,
    NotFound,
    RestoreRefused,
    StorageUnreachable,
    StreamRunning,
)
from headgate_contract.heartbeats import TERMINAL
from headgate_contract.ids import CheckpointId, Generation, RequestId, StreamName
from headgate_contract.records import Deployed, Stopped, StopWanted
from headgate_contract.restore import Fresh, Named, Newest, RestoreFrom
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Deployer, is_unchanged
from headgate_control.explain import Question
from headgate_control.journal import Journal, now_ms
from headgate_control.launch import LaunchInProgress
from headgate_control.outcomes import GAVE_UP, ProcessSign
from headgate_control.processes import wait_gone
from headgate_control.starting import Order, Starter
from headgate_control.status import Observer

AS_IT_RAN = " (as it ran)"
"""Behind the name of who has a stream started again as it ran: that start is not the one that he wanted."""
_ENDING_S = 5.0
"""How long what is left of a driver that did not come up may take to be gone."""


@dataclass(frozen=True, slots=True)
class Before:
    """The generation that a restore has stopped, and by which request."""

    generation: Generation
    stop: RequestId
    taken: CheckpointId | None = None
    """The snapshot at its end, as far as its stop told of it."""

    def is_by(self, request: RequestId | None) -> bool:
        """Whether that is the very request, in any of its ordinals."""
        return request is not None and request.partition("~")[0] == self.stop.partition("~")[0]


@dataclass(frozen=True, kw_only=True)
class AsItRan:
    """Takes back the restores of one root."""

    catalogues: Catalogues
    observer: Observer
    starter: Starter
    deployer: Deployer
    journal: Journal

    def start(
        self, stream: StreamName, order: Order, before: Before, error: HeadgateError, rescaled: Deployed | None
    ) -> HeadgateError:
        """Start it, if that can be; what to raise then: `error`, with what has become of the stream.

        `rescaled` is what the restore has deployed for itself: that is taken back too.
        """
        try:
            hindrance = self._hindrance(stream, before, error)
            if hindrance:
                return self.nothing_is_lost(stream, _with(error, hindrance))
            self._deploy_again(stream, order, rescaled)
            question = _question(self.catalogues.read(stream), before.generation)
            again = replace(order, by=f"{order.by}{AS_IT_RAN}", question=question)
            launched = self.starter.start(stream, again, as_it_ran=before.generation)
        except LaunchInProgress as slow:
            return _with(error, f"it was stopped for that, and is started again as it was: {slow.what}")
        except StreamRunning:
            return error  # somebody else has started it
        except HeadgateError as failed:
            what = f"it was stopped for that, and could not be started again as it was: {failed.what}"
            return self.nothing_is_lost(stream, _with(error, what))
        hint = error.hint if isinstance(error, LaunchFailed) else f"`headgate explain {stream}` tells more"
        what = f"it was stopped for that, and goes on as it was, as generation {launched.generation}"
        return _with(error, what, hint)

    def stopped_by(self, catalogue: Catalogue, stop: RequestId) -> Before | None:
        """The generation that this request has stopped, or wanted to."""
        own = Before(Generation(1), stop)
        wanted = [slot.record for slot in catalogue.decisions if isinstance(slot.record, StopWanted)]
        ended = [slot.record for slot in catalogue.slots if isinstance(slot.record, Stopped)]
        found = [each.generation for each in wanted if own.is_by(each.request)]
        found += [each.generation for each in ended if own.is_by(each.request)]
        return replace(own, generation=max(found)) if found else None

    def other_stop(self, catalogue: Catalogue, before: Before) -> StopWanted | None:
        """The wish of somebody else that the stream be stopped, of that generation or of a later one."""
        generations = [each.generation for each in catalogue.generations if each.generation >= before.generation]
        wishes = (wish for each in generations for wish in self.observer.stops_wanted(catalogue, each))
        others = (wish for wish in wishes if not before.is_by(wish.request))
        return next((wish for wish in others if not wish.reason.startswith(GAVE_UP)), None)

    def nothing_is_lost(self, stream: StreamName, error: HeadgateError) -> HeadgateError:
        """The error again, with what to do next: whatever it was, the snapshots are there."""
        try:
            newest = self.catalogues.read(stream).snapshots[:1]
        except HeadgateError:
            return error
        if not newest:
            return error
        again = f"`headgate restore {stream} --from {newest[0].id}`"
        kept = f"nothing is lost: once that is mended, {again} goes on from {newest[0]}"
        return type(error)(error.what, hint=f"{error.hint}; {kept}" if error.hint else kept)

    def _hindrance(self, stream: StreamName, before: Before, error: HeadgateError) -> str:
        """Why it is not to be started again, or nothing."""
        if isinstance(error, StorageUnreachable):
            return "it was stopped for that"
        status, catalogue = self.observer.look(stream, confirm=True)
        other = self.other_stop(catalogue, before)
        if other is not None:
            return f"it stays stopped: {other.by} wanted that meanwhile"
        if status.generation == before.generation:
            return ""
        if status.process is not None:
            wait_gone(status.process, _ENDING_S)
            status = self.observer.status(stream)
        is_over = status.state in TERMINAL or status.process_sign is ProcessSign.GONE
        if status.live or not is_over or status.process_sign is ProcessSign.ALIVE:
            where = f"process {status.process.pid} on {status.host}" if status.process is not None else status.host
            return f"generation {status.generation} ({where}) may be at work, so no other one is started beside it"
        start, failed = catalogue.generation(before.generation), catalogue.newest_generation
        ran = catalogue.deployed_at(start.deployed) if start is not None else None
        if ran is None or not is_unchanged(ran):
            what_failed = failed.deployed if failed is not None else None
            if what_failed == catalogue.deployed_number:
                job = ran.job if ran is not None else "its job"
                return f"it was stopped for that, and does not go on as it was: {job} has changed since it ran"
        return ""

    def _deploy_again(self, stream: StreamName, order: Order, rescaled: Deployed | None) -> None:
        """What was deployed before `rescaled`, unless somebody has deployed something else since."""
        catalogue = self.catalogues.read(stream)
        now = catalogue.deployed
        if now is None or rescaled is None or (now.by, now.at_ms) != (rescaled.by, rescaled.at_ms):
            return
        earlier = [slot.record for slot in catalogue.decisions if isinstance(slot.record, Deployed)][:-1]
        if earlier:
            wanted = replace(earlier[-1], by=order.by, at_ms=now_ms())
            with self.journal.action(stream, "deploy", order.by, {"instead": "as it was before"}, wanted.job) as note:
                note.details["decision"], _ = self.deployer.record(stream, wanted)


def _question(catalogue: Catalogue, generation: Generation) -> Question:
    """Where that generation has left off. What came behind it counts if it has completed anything."""
    later = [each.generation for each in catalogue.generations if each.generation > generation]
    if not later or any(catalogue.ids_of(each) for each in later):
        return Question(wanted=Newest())
    own = [ref for ref in catalogue.completed if ref.generation == generation]
    if own:
        return Question(wanted=Named(own[-1].id))
    start = catalogue.generation(generation)
    if start is None or not isinstance(start.decision, RestoreFrom):
        return Question(wanted=Fresh())
    base = start.decision.snapshot
    return Question(wanted=Named(base if base.foreign else base.id))


def _with(error: HeadgateError, what: str, hint: str | None = None) -> HeadgateError:
    """The error again, of a kind that says whose fault it was, and what became of the stream."""
    kept = isinstance(error, (BadInput, NotFound, Conflict, LaunchFailed, StorageUnreachable))
    kind = type(error) if kept else RestoreRefused
    sentence, line_end, where = error.what.partition("\n")
    return kind(f"{sentence}; {what}{line_end}{where}", hint=error.hint if hint is None else hint)
