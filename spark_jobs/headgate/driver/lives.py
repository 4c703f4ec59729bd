"""A generation in this process: one life, and after a failure the next, as the restart strategy allows."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from headgate.coordinator.messages import result_of
from headgate.driver import clock, parts
from headgate.driver.life import Life, StopAsked
from headgate.driver.poison import Repeated, Trouble, failed_before
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup
from headgate.driver.telling import tell
from headgate.driver.under_way import DriverSpent
from headgate.driver.work_folder import WorkFolder
from headgate_contract.catalogue import Catalogue, catalogue_of
from headgate_contract.credentials import masked
from headgate_contract.errors import (
    BadInput,
    CorruptObject,
    Fenced,
    HeadgateError,
    NewerVersion,
    OlderVersion,
    RestoreRefused,
    RootLost,
    SinkDamaged,
    SlotTaken,
    SnapshotDamaged,
    StorageError,
    StreamFailed,
    SuppressRestarts,
    causes,
)
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import SlotNumber
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.records import Restarted, SlotLog, slot_log
from headgate_contract.restart import GiveUp, RestartFacts, RestartVerdict, strategy_of
from headgate_contract.restart import Life as Lived
from headgate_contract.restore import Newest, Refuse, RestoreFacts, RestoreFrom, decide_restore
from headgate_contract.stream_logs import StreamLogs

log = logging.getLogger(__name__)

_UNRECOVERABLE = (BadInput, RestoreRefused, NewerVersion, OlderVersion, SinkDamaged, SuppressRestarts)
_MOST_FAILURES = "restart-strategy.max-failures-per-position"
_POLL_S = 0.2
_CLAIMS = 5


class GivenUp(StreamFailed):
    """The stream has failed for good: it says what it failed of, and why nobody restarts it."""


class Lives:
    """One generation of a stream.

    The first life is the launch's: until it has run, its failure is told to whoever launched it, and not mended here.
    """

    def __init__(self, setup: LifeSetup, heart: Heart) -> None:
        self._setup = setup
        self._heart = heart
        self._stop = StopAsked()
        self._strategy = strategy_of(setup.settings)
        self._began_with = setup
        """What the newest life began with."""
        self._lived: list[Lived] = []
        self._folder = WorkFolder(setup.work)
        self._alive: Life | None = None
        self._spent: DriverSpent | None = None
        """Why no other life may follow in this process."""
        self._repeated = Repeated(failed_before(setup.store, setup.catalogue))
        heart.remember(self._repeated.told)
        self._logs = StreamLogs(setup.store, setup.stream)
        self._logs.begin(setup.catalogue.entries)
        self._hurried: set[str] = set()
        """Who has cut a pause short: each once, or a stream that fails at once would restart without any."""

    def run(self) -> None:
        """Live until stopped. Raises what ended the generation: Fenced, GivenUp or whatever went wrong."""
        setup, has_run = self._setup, False
        try:
            while True:
                began = self._now()
                self._alive = life = self._life(setup)
                try:
                    life.run()
                    return
                except Exception as error:  # noqa: BLE001 - whatever ends a life, this is where it is judged
                    failure = error
                has_run = has_run or life.has_run
                self._lived.append(Lived(setup.started.generation, began, self._now()))
                following = self._follow(life, failure, has_run)
                if following is None:
                    return
                setup = following
                self._began_with = setup
        finally:
            self._setup.engine.stop()

    def ask_to_stop(self, reason: str) -> None:
        """End cleanly at the next barrier. Safe to call from a signal handler."""
        self._stop.ask(reason)

    def end_life(self, cause: StreamFailed) -> None:
        """End the life that is under way; after a DriverSpent no other one follows. From any thread."""
        if isinstance(cause, DriverSpent):
            self._spent = cause
        if self._alive is not None:
            self._alive.finish(cause)

    def tell_standstill(self, text: str) -> None:
        """Put into the history what has not moved. From any thread; as slow as storage is."""
        self._say("progress", "FAILED", text)

    def _life(self, setup: LifeSetup) -> Life:
        return Life(setup, self._heart, self._stop, self._folder)

    def _now(self) -> float:
        return time.monotonic()

    # ---- after a failure

    def _follow(self, life: Life, failure: Exception, has_run: bool) -> LifeSetup | None:
        """What the next life begins with, once it may; None if the stream has stopped. Raises what cannot be mended."""
        if isinstance(failure, Fenced):
            raise failure
        self._look_for_successor(failure)
        if self._spent is not None and self._spent is not failure:
            raise self._spent from failure
        if not has_run or isinstance(failure, DriverSpent):
            raise failure
        self._await_root(failure)
        if is_unrecoverable(failure):
            raise self._given_up(failure, "no restart mends that") from failure
        times = self._repeated.note(life.trouble)
        self._heart.remember(self._repeated.told)
        if any(isinstance(cause, SnapshotDamaged) for cause in causes(failure)):
            raise failure  # whether another one is to be taken is decided where generations are launched
        while True:
            verdict = self._strategy.next_attempt(RestartFacts(self._setup.stream, tuple(self._lived)))
            if isinstance(verdict, GiveUp):
                raise self._given_up(failure, verdict.reason) from failure
            self._give_up_if_poisoned(life.trouble, times, failure)
            if not life.ended_whole:
                raise failure  # something of it goes on in this process: only another one can follow
            self._folder.check_at_once(self._setup.engine.folders())
            self._wait(verdict, failure)
            if self._spent is not None:
                raise self._spent from failure
            self._await_root(failure)
            at = self._now()
            try:
                with self._setup.under_way.during(parts.CLAIM):
                    following = self._claim(life, failure)
            except CorruptObject:
                raise  # a log that cannot be read: nothing is guessed
            except StorageError as error:
                log.warning("the restart cannot be written: %s", error)
                if self._stop.is_asked:
                    raise failure from error  # it was to end anyway
                self._lived.append(Lived(self._setup.started.generation, at, self._now()))
                continue
            if following is not None:
                self._note(following.restart)
            return following

    def _give_up_if_poisoned(self, trouble: Trouble | None, times: int, failure: Exception) -> None:
        """Records that have failed it so often in a row will do so until a person changes something."""
        if trouble is not None and times >= self._setup.settings[_MOST_FAILURES]:
            why = (
                f"the stream failed {times} times in a row at the same records of {trouble.place.where} "
                f"({_MOST_FAILURES}): mend or remove the record or its file, or change the job and deploy it; "
                "then start the stream"
            )
            raise self._given_up(failure, why) from failure

    def _look_for_successor(self, failure: Exception) -> None:
        """Who was overtaken looks failed before it looks fenced: its snapshot is gone, for instance."""
        own = self._setup.started.generation
        try:
            newest = self._read().newest_generation
        except HeadgateError as error:
            log.warning("whether a successor has begun cannot be seen: %s", error)
            return
        if newest is not None and newest.generation > own:
            raise Fenced(
                f"generation {own} of stream {self._setup.stream} is fenced: "
                f"generation {newest.generation} was started by {newest.by} on {newest.host}"
            ) from failure

    def _await_root(self, failure: Exception) -> None:
        """Wait until the root is back. Raises RootLost, if it is not by when others take this driver for lost.

        Nobody can be told meanwhile: neither heartbeats nor history can be written.
        """
        patience_s = self._setup.settings["heartbeat.timeout"].seconds
        until_s, said = self._now() + patience_s, False
        while True:
            try:
                self._setup.store.check(anew=True)
                self._began_with.slots.confirm(SlotNumber(self._newest_slot))  # an older copy is a root, too
            except RootLost as lost:
                if self._stop.is_asked or self._now() >= until_s:
                    raise lost from failure
                if not said:
                    log.error("%s; waiting for it for up to %.0f s", lost.what, patience_s)
                said = True
            except StorageError as error:
                log.warning("whether the root is there cannot be seen: %s", error)
                return
            else:
                if said:
                    log.warning("the root %s is back", self._setup.store.url)
                return
            self._pause(min(until_s, self._now() + _POLL_S))

    def _read(self) -> Catalogue:
        """The logs as they are now; what was read before is not read again."""
        return catalogue_of(self._setup.stream, self._logs.read())

    def _note(self, restart: int) -> None:
        self._heart.note(lambda progress: replace(progress, restarts=restart))

    def _given_up(self, failure: Exception, why: str) -> GivenUp:
        self._say("restart", "FAILED", f"given up, {why}: {describe_error(failure)}")
        return GivenUp(f"{describe_error(failure)}; not restarted: {why}")

    def _wait(self, verdict: RestartVerdict, failure: Exception) -> None:
        """The pause before a restart; a person who wants the stream to end does not wait for it."""
        assert not isinstance(verdict, GiveUp)
        cause = f"restart {verdict.attempt} in {verdict.delay_s:.1f} s after: {describe_error(failure)}"
        log.warning("%s", cause)
        self._heart.become(StreamState.RESTORING, cause)
        self._say("restart", "ISSUED", cause)
        self._pause(self._now() + verdict.delay_s)

    def _pause(self, until_s: float) -> None:
        pause = threading.Event()
        while self._now() < until_s and not self._end_is_wanted():
            pause.wait(min(_POLL_S, max(0.0, until_s - self._now())))

    def _end_is_wanted(self) -> bool:
        """Whether somebody new has asked this generation to stop or to be cancelled: its next life hears of it."""
        asking = {"a signal"} if self._stop.is_asked else set[str]()
        try:
            waiting = Mailbox(self._setup.store, self._setup.stream).open_requests()
        except StorageError:
            waiting = []
        asking |= {
            request.id
            for request in waiting
            if isinstance(request, Request)
            and request.generation == self._setup.started.generation
            and request.kind in (RequestKind.STOP, RequestKind.CANCEL)
        }
        new = asking - self._hurried
        self._hurried |= new
        return bool(new)

    def _claim(self, life: Life, failure: Exception) -> LifeSetup | None:
        """Write the restart into the log, which ends what the failed life may still have on its way there."""
        setup = self._setup
        for _ in range(_CLAIMS):
            slots = slot_log(setup.store, setup.stream)  # anew: who waits in the failed life may still use the other
            catalogue = self._read()
            newest_slot, decided = _ends(catalogue)
            if newest_slot < self._newest_slot or decided < _ends(self._began_with.catalogue)[1]:
                raise RootLost(f"the log on {setup.store.url} has lost its end, or is an older one")
            newest = catalogue.newest_generation
            if newest is None or newest.generation != setup.started.generation:
                own = f"generation {setup.started.generation} of stream {setup.stream}"
                raise Fenced(f"{own} is fenced: another generation was started while this one was about to go on")
            if catalogue.repaired is not None:
                raise Fenced(f"generation {newest.generation} of stream {setup.stream} is fenced: its log was repaired")
            if catalogue.stopped is not None:
                self._answer(catalogue)
                return None  # the failed life had written its end, and only did not hear that it had
            sinks = {end.vertex.uid: end.vertex.sink.rollback for end in setup.plan.sinks}
            decision = decide_restore(RestoreFacts(catalogue=catalogue, wanted=Newest(), damaged={}, sinks=sinks))
            if isinstance(decision, Refuse):
                raise RestoreRefused(f"{describe_error(failure)}; and the stream cannot go on: {decision.reason}")
            record = Restarted(
                generation=newest.generation,
                restart=(catalogue.last_restart.restart if catalogue.last_restart is not None else 0) + 1,
                cause=describe_error(failure),
                snapshot=decision.snapshot.id if isinstance(decision, RestoreFrom) else None,
                at_ms=clock.wall_ms(),
            )
            try:
                catalogue = self._write(slots, catalogue, record)
            except SlotTaken:
                continue  # the failed life's last word was still on its way
            return replace(
                setup,
                catalogue=catalogue,
                slots=slots,
                restart=record.restart,
                again=decision,
                above=life.next_checkpoint,
                failed_s=self._lived[-1].ended_s,
            )
        raise StorageError(f"the log of stream {setup.stream} kept growing while its restart was written")

    def _answer(self, catalogue: Catalogue) -> None:
        """Tell whoever asked for the end that the log has it."""
        stopped = catalogue.stopped
        if stopped is None or stopped.request is None:
            return
        taken = next((ref for ref in catalogue.completed if ref.id == stopped.snapshot), None)
        answer = Answer(
            id=stopped.request,
            outcome=Outcome.DONE,
            result=result_of(taken) if taken is not None else {},
            generation=stopped.generation,
            at_ms=clock.wall_ms(),
        )
        Mailbox(self._setup.store, self._setup.stream).reply(answer)

    def _write(self, slots: SlotLog, catalogue: Catalogue, restart: Restarted) -> Catalogue:
        """The log with the restart in it, not read anew: a successor may be there. Raises SlotTaken."""
        slot = slots.append(catalogue.newest_slot, restart)
        if catalogue.newest_slot is not None:
            slots.confirm(catalogue.newest_slot)  # as behind each slot: see Ledger
        return replace(catalogue, slots=(*catalogue.slots, slot))

    @property
    def _newest_slot(self) -> int:
        return max(self._began_with.catalogue.newest_slot or 0, self._began_with.slots.newest_known)

    def _say(self, what: str, outcome: str, text: str) -> None:
        setup = self._setup
        tell(setup.store, setup.stream, setup.started.generation, what, outcome, text, slot=self._newest_slot)


def _ends(catalogue: Catalogue) -> tuple[int, int]:
    """The newest slot and decision."""
    return catalogue.newest_slot or 0, catalogue.entries.newest_decision or 0


def is_unrecoverable(error: BaseException) -> bool:
    """Whether it, or what it came from, is something that no restart mends."""
    return any(isinstance(cause, _UNRECOVERABLE) for cause in causes(error))


def is_final(error: BaseException) -> bool:
    """Whether a generation that ended with it is to be followed by another only if a person says so."""
    return isinstance(error, GivenUp) or is_unrecoverable(error)


def describe_error(error: BaseException) -> str:
    """For others to read: a job's or a library's error may quote a URL with a password in it."""
    return masked(str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}")
