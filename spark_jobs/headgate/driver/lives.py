"""A generation in this process: one life, and after a failure the next, as the restart strategy allows."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from headgate.coordinator.messages import result_of
from headgate.driver import clock
from headgate.driver.life import Life, StopAsked
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup
from headgate.driver.telling import tell
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import (
    BadInput,
    CorruptObject,
    Fenced,
    HeadgateError,
    NewerVersion,
    RestoreRefused,
    SlotTaken,
    SnapshotDamaged,
    StorageError,
    StreamFailed,
    SuppressRestarts,
    causes,
)
from headgate_contract.heartbeats import StreamState
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.records import Restarted, SlotLog, slot_log
from headgate_contract.restart import GiveUp, RestartFacts, RestartVerdict, strategy_of
from headgate_contract.restart import Life as Lived
from headgate_contract.restore import Newest, Refuse, RestoreFacts, RestoreFrom, decide_restore

log = logging.getLogger(__name__)

_UNRECOVERABLE = (BadInput, RestoreRefused, NewerVersion, SuppressRestarts)
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
        self._lived: list[Lived] = []
        self._hurried: set[str] = set()
        """Who has cut a pause short: each once, or a stream that fails at once would restart without any."""

    def run(self) -> None:
        """Live until stopped. Raises what ended the generation: Fenced, GivenUp or whatever went wrong."""
        setup, has_run = self._setup, False
        try:
            while True:
                began = self._now()
                life = self._life(setup)
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
        finally:
            self._setup.engine.stop()

    def ask_to_stop(self, reason: str) -> None:
        """End cleanly at the next barrier. Safe to call from a signal handler."""
        self._stop.ask(reason)

    def _life(self, setup: LifeSetup) -> Life:
        return Life(setup, self._heart, self._stop)

    def _now(self) -> float:
        return time.monotonic()

    # ---- after a failure

    def _follow(self, life: Life, failure: Exception, has_run: bool) -> LifeSetup | None:
        """What the next life begins with, once it may; None if the stream has stopped. Raises what cannot be mended."""
        if isinstance(failure, Fenced):
            raise failure
        self._look_for_successor(failure)
        if not has_run:
            raise failure
        if is_unrecoverable(failure):
            raise self._given_up(failure, "no restart mends that") from failure
        if any(isinstance(cause, SnapshotDamaged) for cause in causes(failure)):
            raise failure  # whether another one is to be taken is decided where generations are launched
        while True:
            verdict = self._strategy.next_attempt(RestartFacts(self._setup.stream, tuple(self._lived)))
            if isinstance(verdict, GiveUp):
                raise self._given_up(failure, verdict.reason) from failure
            if not life.ended_whole:
                raise failure  # something of it goes on in this process: only another one can follow
            self._wait(verdict, failure)
            at = self._now()
            try:
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

    def _look_for_successor(self, failure: Exception) -> None:
        """Who was overtaken looks failed before it looks fenced: its snapshot is gone, for instance."""
        own = self._setup.started.generation
        try:
            newest = read_catalogue(self._setup.store, self._setup.stream).newest_generation
        except HeadgateError as error:
            log.warning("whether a successor has begun cannot be seen: %s", error)
            return
        if newest is not None and newest.generation > own:
            raise Fenced(
                f"generation {own} of stream {self._setup.stream} is fenced: "
                f"generation {newest.generation} was started by {newest.by} on {newest.host}"
            ) from failure

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
            catalogue = read_catalogue(setup.store, setup.stream)
            newest = catalogue.newest_generation
            if newest is None or newest.generation != setup.started.generation:
                own = f"generation {setup.started.generation} of stream {setup.stream}"
                raise Fenced(f"{own} is fenced: another one was started while it was about to go on")
            if catalogue.stopped is not None:
                self._answer(catalogue)
                return None  # the failed life had written its end, and only did not hear that it had
            sinks = {end.vertex.uid: end.vertex.sink.rollback for end in setup.plan.sinks}
            decision = decide_restore(RestoreFacts(catalogue=catalogue, wanted=Newest(), damaged={}, sinks=sinks))
            if isinstance(decision, Refuse):
                raise RestoreRefused(f"{describe_error(failure)}; and it cannot go on: {decision.reason}")
            record = Restarted(
                generation=newest.generation,
                restart=len(catalogue.restarts) + 1,
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
        return replace(catalogue, slots=(*catalogue.slots, slot))

    def _say(self, what: str, outcome: str, text: str) -> None:
        tell(self._setup.store, self._setup.stream, self._setup.started.generation, what, outcome, text)


def is_unrecoverable(error: BaseException) -> bool:
    """Whether it, or what it came from, is something that no restart mends."""
    return any(isinstance(cause, _UNRECOVERABLE) for cause in causes(error))


def is_final(error: BaseException) -> bool:
    """Whether a generation that ended with it is to be followed by another only if a person says so."""
    return isinstance(error, GivenUp) or is_unrecoverable(error)


def describe_error(error: BaseException) -> str:
    return str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
