"""Starts generations: decide what to restore, claim the slot, launch the driver, wait until it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate_contract.catalogue import Catalogue
from headgate_contract.credentials import masked
from headgate_contract.errors import (
    BadInput,
    Conflict,
    HeadgateError,
    LaunchFailed,
    RestoreRefused,
    SlotTaken,
    SnapshotUnknown,
    StreamRunning,
)
from headgate_contract.heartbeats import StreamState, read_heartbeat
from headgate_contract.ids import Generation, SlotNumber, StreamName
from headgate_contract.process import this_host
from headgate_contract.records import Deployed, GenerationStarted, Stopped, StopWanted
from headgate_contract.restart import GiveUp
from headgate_contract.restore import Named, Newest, Refuse, RestoreFrom
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import check_unchanged, is_same, is_unchanged
from headgate_control.explain import Question, explain
from headgate_control.housekeeping import tidy
from headgate_control.journal import Journal, Note, now_ms
from headgate_control.launch import Driver, Launcher, LaunchInProgress, Place
from headgate_control.outcomes import (
    GAVE_UP,
    Explanation,
    Launched,
    NotNeeded,
    StreamStatus,
)
from headgate_control.processes import kill_group, kill_left_by
from headgate_control.status import Observer
from headgate_control.telling import who_runs

_CLAIMS = 5


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which start is wanted, and by whom."""

    by: str
    question: Question = field(default_factory=lambda: Question(wanted=Newest()))
    wait: bool = True
    kill_old: bool = True


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A generation that is ours to launch."""

    record: GenerationStarted
    slot: SlotNumber
    before: Catalogue
    deployed: Deployed
    place: Place
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Starter:
    """Starts the streams of one root."""

    store: ObjectStore
    catalogues: Catalogues
    observer: Observer
    launcher: Launcher
    journal: Journal

    def start(
        self, stream: StreamName, order: Order, what: str = "start", *, as_it_ran: Generation | None = None
    ) -> Launched:
        """Start `stream` because a person wants it. Raises StreamRunning, RestoreRefused, LaunchFailed.

        `as_it_ran`: not what is deployed now, but what that generation was.
        """
        self.store.check_writable()
        self.catalogues.read(stream)
        with self.journal.action(stream, what, order.by) as note:
            claimed = self._claim_start(stream, order, note, as_it_ran)
            try:
                return self._launch(stream, claimed, order)
            except LaunchInProgress:
                raise
            except LaunchFailed as error:
                # Its caller was told that it failed: nothing may come up behind his back.
                self.give_up(stream, claimed.record.generation, order.by, error)
                raise

    def recover(self, stream: StreamName, order: Order) -> Launched | NotNeeded:
        """Start `stream` if it is lost and its restart strategy allows it now; of all who try, one does."""
        self.store.check_writable()
        status, catalogue = self.observer.look(stream, confirm=True)
        lost = status.lost
        if lost is None:
            return _not_needed(status, status.text)
        if isinstance(lost.restart, GiveUp):
            return _not_needed(status, f"{lost.reason}; given up: {lost.restart.reason}", given_up=True)
        if lost.due_in_s > 0:
            return _not_needed(status, f"{lost.reason}; restart due in {lost.due_in_s:.1f} s", retry_in_s=lost.due_in_s)
        try:
            number, deployed, warnings = self._what_starts(catalogue, lost.generation)
            explanation = self._decided(catalogue, number, deployed, order.question)
            claimed = self._claim(catalogue, explanation, deployed, order, lost.generation, warnings)
        except SlotTaken:
            return self._beaten(stream, lost.generation)
        except (RestoreRefused, Conflict, BadInput) as error:  # waiting mends none of these
            with self.journal.action(stream, "recover", order.by, text=lost.reason):
                self.give_up(stream, lost.generation, order.by, error)
                raise
        with self.journal.action(stream, "recover", order.by, {"replaces": lost.generation}, lost.reason) as note:
            note.generation, note.text = claimed.record.generation, claimed.record.decision.reason
            wish = self.observer.stop_wanted(self.catalogues.look(stream), lost.generation)
            if wish is not None:
                return self._withdraw(stream, claimed, wish, lost.generation)
            return self._launch(stream, claimed, order)

    def _claim_start(self, stream: StreamName, order: Order, note: Note, as_it_ran: Generation | None) -> _Claimed:
        for _ in range(_CLAIMS):
            status, catalogue = self.observer.look(stream, confirm=True)
            if status.live:
                raise StreamRunning(
                    f"stream {stream} runs already: {who_runs(status)}", hint=f"`headgate stop {stream}` ends it"
                )
            number, deployed, warnings = self._what_starts(catalogue, as_it_ran)
            try:
                explanation = self._decided(catalogue, number, deployed, order.question)
                claimed = self._claim(catalogue, explanation, deployed, order, None, warnings)
            except SlotTaken:
                continue  # somebody else did something: look again, and say who it was
            note.generation, note.text = claimed.record.generation, claimed.record.decision.reason
            return claimed
        raise Conflict(f"stream {stream}: others kept writing its log", hint=f"look at `headgate status {stream}`")

    def _decided(self, catalogue: Catalogue, number: int, deployed: Deployed, question: Question) -> Explanation:
        """What to start from. Raises RestoreRefused, but SlotTaken if somebody wrote to the log while it looked."""
        explanation = explain(self.store, catalogue, number, deployed, question)
        try:
            check_restorable(explanation, question)
        except (RestoreRefused, SnapshotUnknown):
            now = self.catalogues.read(catalogue.stream)
            if now.newest_slot != catalogue.newest_slot:
                raise SlotTaken(f"stream {now.stream}: its log has gone on to slot {now.newest_slot}") from None
            raise
        return explanation

    def _claim(
        self,
        catalogue: Catalogue,
        explanation: Explanation,
        deployed: Deployed,
        order: Order,
        replaces: Generation | None,
        warnings: tuple[str, ...],
    ) -> _Claimed:
        assert not isinstance(explanation.decision, Refuse)
        place = self.launcher.place(catalogue.stream, explanation.next_generation, deployed)
        decision = explanation.decision
        brought = isinstance(decision, RestoreFrom) and decision.snapshot.foreign
        record = GenerationStarted(
            generation=explanation.next_generation,
            decision=decision,
            first_checkpoint=catalogue.next_checkpoint.next() if brought else catalogue.next_checkpoint,
            deployed=explanation.deployed,
            by=order.by,
            host=this_host(),
            at_ms=now_ms(),
            launch=place.launch,
            log=str(place.log),
            accept_duplicates=order.question.accept_duplicates,
            replaces=replaces,
        )
        slot = self.catalogues.claim(catalogue, record)
        return _Claimed(record, slot.number, catalogue, deployed, place, (*explanation.warnings, *warnings))

    def _launch(self, stream: StreamName, claimed: _Claimed, order: Order) -> Launched:
        if order.kill_old:
            self._kill_predecessor(claimed.before)
        driver = self.launcher.start(claimed.record, stream, claimed.deployed, claimed.place)
        state = StreamState.LAUNCHED
        if order.wait:
            state = self.launcher.wait_running(driver, claimed.deployed).state
        tidy(self.store, claimed.before)
        return _launched(claimed, driver, state)

    def _kill_predecessor(self, before: Catalogue) -> None:
        """End what is left of the driver before, and of what it has started, if it is on this host.

        It is fenced already: this frees memory.
        """
        newest = before.newest_generation
        if newest is None or before.stopped is not None:
            return
        seen = read_heartbeat(self.store, before.stream, newest.generation)
        process = seen.heartbeat.process if seen is not None and seen.heartbeat is not None else None
        if process is not None and not kill_group(process):
            kill_left_by(process, newest.launch)

    def _what_starts(self, catalogue: Catalogue, as_it_ran: Generation | None) -> tuple[int, Deployed, tuple[str, ...]]:
        """What is deployed; or what that generation was, if its job file is still the same, else what is deployed."""
        start = catalogue.generation(as_it_ran) if as_it_ran is not None else None
        ran = catalogue.deployed_at(start.deployed) if start is not None else None
        number, deployed = self.catalogues.deployed(catalogue)
        if start is not None and ran is not None and is_unchanged(ran):
            return (number, deployed, ()) if is_same(ran, deployed) else (start.deployed, ran, ())
        check_unchanged(catalogue.stream, deployed)
        told = f"stream {catalogue.stream} runs what was deployed since (decision {number}): the job file has changed"
        return number, deployed, (told,) if as_it_ran is not None else ()

    def _beaten(self, stream: StreamName, lost: Generation) -> NotNeeded:
        status, _ = self.observer.look(stream)
        if status.generation != lost:
            return _not_needed(status, f"somebody else restarted it: {who_runs(status)}")
        return _not_needed(status, f"generation {lost} lives: it has just written to the log")

    def _withdraw(self, stream: StreamName, claimed: _Claimed, wish: StopWanted, lost: Generation) -> NotNeeded:
        """Somebody wanted the stream stopped while this recovery claimed it: the claim ends before it began.

        Its end belongs right behind it: whoever wrote there meanwhile has the stream.
        """
        record = Stopped(
            generation=claimed.record.generation, reason=f"not started: {wish.by} wanted the stream stopped"
        )
        try:
            self.catalogues.append_slot(stream, claimed.slot, record)
        except SlotTaken:
            return self._beaten(stream, lost)
        return _not_needed(self.observer.status(stream), f"{wish.by} wanted the stream stopped meanwhile")

    def give_up(self, stream: StreamName, generation: Generation, by: str, error: HeadgateError) -> None:
        """Nobody restarts that generation, which did not come up."""
        wish = StopWanted(generation=generation, by=by, reason=f"{GAVE_UP}{masked(error.what)}", at_ms=now_ms())
        self.catalogues.decide(stream, wish)


def check_restorable(explanation: Explanation, question: Question) -> None:
    """Raise what a refused decision means for a start."""
    decision = explanation.decision
    if not isinstance(decision, Refuse):
        return
    stream = explanation.stream
    others = ", ".join(str(ref) for ref in decision.alternatives[:5])
    hint = f"`headgate restore {stream} --from ID` takes one of: {others}" if others else ""
    if isinstance(question.wanted, Named) and not decision.rejected and not decision.rollbacks:
        raise SnapshotUnknown(
            f"stream {stream}: {decision.reason}", hint=hint or f"`headgate snapshots {stream}` lists what there is"
        )
    raise RestoreRefused(
        f"stream {stream} is not started: {decision.reason}",
        hint=hint or f"`headgate explain {stream}` tells why; `headgate start {stream} --fresh` starts without state",
    )


def _launched(claimed: _Claimed, driver: Driver, state: StreamState) -> Launched:
    return Launched(
        stream=driver.stream,
        generation=driver.generation,
        decision=claimed.record.decision,
        process=driver.identity,
        log=str(driver.log),
        state=state,
        warnings=claimed.warnings,
    )


def _not_needed(
    status: StreamStatus, reason: str, *, retry_in_s: float | None = None, given_up: bool = False
) -> NotNeeded:
    return NotNeeded(
        stream=status.stream,
        reason=reason,
        generation=status.generation,
        by=status.by,
        host=status.host,
        retry_in_s=retry_in_s,
        given_up=given_up,
    )
