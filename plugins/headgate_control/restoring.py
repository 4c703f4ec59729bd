"""Restores streams: one that runs is stopped first, but only if nothing is known that would refuse the restore.

With another parallelism the same job is deployed once more: checked while the stream still runs, recorded when it has
stopped. What is restored is decided after the stop, by what is there then. So a restore that is refused beforehand, or
a stop that fails, changes nothing; one that is refused behind its stop, or whose driver does not come up, starts the
stream again as it ran.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import (
    Conflict,
    HeadgateError,
    LaunchFailed,
    RequestFailed,
    RequestTimedOut,
    StreamNotRunning,
    StreamRunning,
)
from headgate_contract.ids import CheckpointId, Generation, RequestId, SlotNumber, StreamName
from headgate_contract.mailbox import RequestKind
from headgate_contract.records import Deployed
from headgate_contract.restore import Located, Named
from headgate_contract.store import ObjectStore
from headgate_control.as_it_ran import AsItRan, Before
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Deployer, check_unchanged
from headgate_control.explain import explain
from headgate_control.foreseeing import Foresight
from headgate_control.journal import Journal
from headgate_control.launch import LaunchInProgress
from headgate_control.outcomes import Launched
from headgate_control.requests import made_up_id
from headgate_control.starting import Order, Starter, check_restorable
from headgate_control.status import Observer
from headgate_control.stopping import StopOrder, Stopper
from headgate_control.telling import who_runs


@dataclass(frozen=True, kw_only=True)
class Restorer:
    """Restores the streams of one root."""

    store: ObjectStore
    catalogues: Catalogues
    observer: Observer
    starter: Starter
    stopper: Stopper
    deployer: Deployer
    journal: Journal
    foresight: Foresight
    as_it_ran: AsItRan

    def restore(
        self,
        stream: StreamName,
        order: Order,
        *,
        savepoint_first: bool,
        parallelism: int | None = None,
        stopped_by: RequestId | None = None,
    ) -> Launched:
        """Raises what start() raises, and what stop() raises for a stream that runs on.

        `stopped_by`: it ran until the caller stopped it with this request.
        """
        before = self._stopped_before(stream, stopped_by) if stopped_by is not None else None
        rescaled = None
        try:
            rescaled = self._rescaled(stream, order, parallelism)
            if before is None:
                before = self._stop_if_live(stream, order, rescaled, savepoint=savepoint_first)
            launched = self._start(stream, order, rescaled)
            return replace(launched, stopped_with=before.taken if before is not None else None)
        except (LaunchInProgress, StreamRunning):
            raise  # it runs, or will
        except HeadgateError as error:
            if before is not None:
                told = self.as_it_ran.start(stream, order, before, error, rescaled[1] if rescaled else None)
            elif isinstance(error, LaunchFailed):
                told = self.as_it_ran.nothing_is_lost(stream, error)
            else:
                raise
            raise told from error if told is not error else None

    def take_back(self, stream: StreamName, order: Order, stop: RequestId, error: HeadgateError) -> HeadgateError:
        """What to raise of a restore whose driver did not come up: if `stop` was for it, the stream goes on as it ran.

        Whoever orders it has a name of his own: what he has deployed was for this restore.
        """
        catalogue = self.catalogues.read(stream)
        before, newest = self.as_it_ran.stopped_by(catalogue, stop), catalogue.newest_generation
        if newest is not None:
            self.starter.give_up(stream, newest.generation, order.by, error)  # nothing comes up behind his back
        if before is None:
            return error
        deployed = catalogue.deployed
        own = deployed if deployed is not None and deployed.by == order.by else None
        return self.as_it_ran.start(stream, order, before, error, own)

    def check(
        self, stream: StreamName, order: Order, *, savepoint_first: bool, parallelism: int | None = None
    ) -> CheckpointId | None:
        """What a stop for this restore must keep. Raises what would refuse it, as far as that is known beforehand."""
        rescaled = self._rescaled(stream, order, parallelism)
        status, catalogue = self.observer.look(stream, confirm=True)
        if status.live:
            return self._foresee(stream, order, rescaled, savepoint=savepoint_first)
        number, deployed = self._deployed(stream, rescaled)
        check_restorable(explain(self.store, catalogue, number, deployed, order.question), order.question)
        return None

    def _rescaled(
        self, stream: StreamName, order: Order, parallelism: int | None
    ) -> tuple[SlotNumber, Deployed] | None:
        """What is deployed, at that parallelism, and what it was made from. Takes seconds: nothing is pinned by it."""
        self.store.check_writable()
        catalogue = self.catalogues.read(stream)
        if parallelism is None:
            return None
        number, _ = self.catalogues.deployed(catalogue)
        return SlotNumber(number), self.deployer.rescaled(catalogue, parallelism, order.by)

    def _deployed(self, stream: StreamName, rescaled: tuple[SlotNumber, Deployed] | None) -> tuple[int, Deployed]:
        """What would be started, and its number. Raises Conflict if it is no longer what was checked."""
        number, deployed = self.catalogues.deployed(self.catalogues.read(stream))
        check_unchanged(stream, deployed)
        if rescaled is None:
            return number, deployed
        if rescaled[0] != number:
            raise Conflict(f"stream {stream} was deployed anew while this was checked", hint="repeat the command")
        return rescaled

    def _foresee(
        self, stream: StreamName, order: Order, rescaled: tuple[SlotNumber, Deployed] | None, *, savepoint: bool
    ) -> CheckpointId | None:
        number, deployed = self._deployed(stream, rescaled)
        keep = self.foresight.check(stream, number, deployed, order.question, savepoint=savepoint)
        return keep if isinstance(order.question.wanted, (Named, Located)) else None

    def _stop(self, stream: StreamName, order: StopOrder) -> CheckpointId | None:
        """What was taken at the end. Raises what kept the driver from stopping.

        One that died over it is restored as after any crash.
        """
        try:
            return self.stopper.stop(stream, order).snapshot
        except (StreamNotRunning, RequestFailed) as error:
            status, catalogue = self.observer.look(stream, confirm=True)
            if status.live and isinstance(error, RequestTimedOut):
                hint = f"it may stop yet: then `headgate start {stream}` goes on from there, and nothing is lost"
                raise RequestTimedOut(error.what, hint=hint) from error
            if status.live:
                raise type(error)(error.what, hint=f"stream {stream} runs on as it was") from error
            if catalogue.stopped is not None:
                raise  # by somebody who wants it stopped
            return None

    def _stop_if_live(
        self, stream: StreamName, order: Order, rescaled: tuple[SlotNumber, Deployed] | None, *, savepoint: bool
    ) -> Before | None:
        """What was stopped, if it ran. Raises Conflict if somebody else wants it stopped, too."""
        status, _ = self.observer.look(stream, confirm=True)
        if not status.live or status.generation is None:
            return None
        keep = self._foresee(stream, order, rescaled, savepoint=savepoint)
        before = Before(status.generation, made_up_id(RequestKind.STOP))
        how = StopOrder(by=order.by, savepoint=savepoint, keep=keep, id=before.stop, to_restore=True)
        taken = self._stop(stream, how)
        self._heed_others(self.catalogues.read(stream), before)
        return replace(before, taken=taken)

    def _stopped_before(self, stream: StreamName, stop: RequestId) -> Before:
        """What the caller has stopped. Raises StreamRunning or Conflict if somebody else wants something else since."""
        status, catalogue = self.observer.look(stream, confirm=True)
        newest = status.generation or Generation(1)
        before = self.as_it_ran.stopped_by(catalogue, stop)
        self._heed_others(catalogue, before or Before(newest, stop))
        if status.live:
            raise StreamRunning(
                f"stream {stream} was stopped for a restore, and runs again: {who_runs(status)}",
                hint="repeat the restore if it is still meant",
            )
        if before is None or before.generation != newest:
            raise Conflict(f"stream {stream} was not stopped for this restore: {status.text}", hint="repeat it")
        return before

    def _heed_others(self, catalogue: Catalogue, before: Before) -> None:
        """Raise StreamNotRunning if somebody else wants the stream stopped: it was, and a person's stop counts."""
        other, stream = self.as_it_ran.other_stop(catalogue, before), catalogue.stream
        if other is not None:
            raise StreamNotRunning(
                f"stream {stream} is stopped: {other.by} wanted that meanwhile, so it is not restored",
                hint=f"`headgate start {stream}` goes on where it stopped; repeat the restore if that is meant",
            )

    def _start(self, stream: StreamName, order: Order, rescaled: tuple[SlotNumber, Deployed] | None) -> Launched:
        if rescaled is not None:
            number, deployed = self._deployed(stream, rescaled)
            found = explain(self.store, self.catalogues.read(stream), number, deployed, order.question)
            check_restorable(found, order.question)
            parallelism = deployed.settings["parallelism.default"]
            with self.journal.action(
                stream, "deploy", order.by, {"parallelism": int(parallelism)}, deployed.job
            ) as note:
                note.details["decision"], _ = self.deployer.record(stream, deployed)
        return self.starter.start(stream, order, what="restore")
