"""Looks at streams: gathers what liveness and the restart strategies judge, and puts it into one status each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import CorruptObject, HeadgateError, StorageError
from headgate_contract.heartbeats import Seen, read_heartbeat
from headgate_contract.ids import Generation, StreamName
from headgate_contract.mailbox import Mailbox, Outcome
from headgate_contract.paths import StreamPaths
from headgate_contract.records import GenerationStarted, StopWanted
from headgate_contract.restart import GiveUp, RestartAfter, RestartFacts, RestartVerdict, strategy_of
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.lived import Lived
from headgate_control.liveness import Judgement, LivenessFacts, confirm_after_s, judge
from headgate_control.outcomes import Condition, Lost, StreamStatus
from headgate_control.processes import sign_of
from headgate_control.signs import damaged_heartbeats, newest_sign
from headgate_control.watch import Watch

_AT_ONCE = 16


class Observer:
    """Looks at the streams of one root; two looks of the same observer confirm a silence."""

    def __init__(self, store: ObjectStore, catalogues: Catalogues, watch: Watch) -> None:
        self._store = store
        self._catalogues = catalogues
        self._watch = watch
        self._lived = Lived(store, catalogues)
        self._unanswered: dict[tuple[StreamName, str], object] = {}
        """The sign of life when a wish had no answer yet: a driver that gives no new one answers nothing."""

    def status(self, stream: StreamName, *, confirm: bool = False) -> StreamStatus:
        """How `stream` is, UNREADABLE if its logs are; `confirm` as in look(). Raises StreamUnknown."""
        try:
            return self.look(stream, confirm=confirm)[0]
        except CorruptObject as error:
            return self._unreadable(stream, error)

    def look(self, stream: StreamName, *, confirm: bool = False) -> tuple[StreamStatus, Catalogue]:
        """How `stream` is, and the catalogue that this rests on; `confirm` watches a silent one until it is clear.

        Raises StreamUnknown, and CorruptObject if a log cannot be read.
        """
        catalogue = self._catalogues.read(stream)
        found = self._status(catalogue)
        if not confirm or found.condition is not Condition.SILENT:
            return found, catalogue
        settings = settings_of_newest(catalogue)
        deadline = time.monotonic() + 1 + confirm_after_s(settings) + settings["heartbeat.timeout"].seconds
        while found.condition is Condition.SILENT and time.monotonic() < deadline:
            time.sleep(min(0.5, settings["heartbeat.interval"].seconds / 4))
            catalogue = self._catalogues.read(stream)
            found = self._status(catalogue)
        return found, catalogue

    def fleet(self, streams: Iterable[StreamName] | None = None) -> list[StreamStatus]:
        """The status of `streams`, or of every stream; each costs as few requests, whatever its age.

        Raises NotARoot, once for all of them.
        """
        self._store.check()
        names = list(streams) if streams is not None else self._catalogues.names()
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = pool.map(self._glance, names)
            return [status for status in found if status is not None]

    def _glance(self, stream: StreamName) -> StreamStatus | None:
        """One of many: what is wrong with this stream must not hide the others; None if it was never deployed."""
        try:
            catalogue = self._catalogues.look(stream)
            return self._status(catalogue, of_many=True) if catalogue.decisions or catalogue.slots else None
        except HeadgateError as error:
            return self._unreadable(stream, error)

    def _unreadable(self, stream: StreamName, error: HeadgateError) -> StreamStatus:
        """What heartbeats tell of a stream whose log cannot be read: its driver may well be at work."""
        unread = StreamStatus(stream=stream, condition=Condition.UNREADABLE, text=str(error))
        try:
            sign = newest_sign(self._store, stream)
            damaged = damaged_heartbeats(self._store, stream)
        except HeadgateError:
            return unread
        unread = replace(unread, heartbeat_fault="; ".join(damaged) or None)
        beat = sign.seen.heartbeat if sign is not None else None
        if sign is None:
            return unread
        return replace(
            unread,
            text=f"{error.what}; {sign.told}; {error.hint}" if error.hint else f"{error.what}; {sign.told}",
            generation=sign.seen.generation,
            host=beat.process.host if beat is not None and beat.process is not None else None,
            state=beat.state if beat is not None else None,
            heartbeat_age_s=round(sign.seen.age_s, 3),
            process=beat.process if beat is not None else None,
            process_sign=sign.process,
            log=beat.log if beat is not None else None,
            cause=beat.cause if beat is not None else None,
            progress=beat.progress if beat is not None else None,
        )

    def stop_wanted(self, catalogue: Catalogue, generation: Generation, sign: object = None) -> StopWanted | None:
        """The newest wish to stop `generation` that stands."""
        return next(self.stops_wanted(catalogue, generation, sign), None)

    def stops_wanted(self, catalogue: Catalogue, generation: Generation, sign: object = None) -> Iterator[StopWanted]:
        """The wishes to stop `generation` that stand, newest first: its driver has not answered that it cannot.

        With a `sign` of life, a wish is asked after only once for each.
        """
        wishes = catalogue.stops_wanted(generation)
        return (wish for wish in wishes if not self._failed(catalogue.stream, wish, sign))

    def _failed(self, stream: StreamName, wish: StopWanted, sign: object) -> bool:
        if wish.request is None or (sign is not None and self._unanswered.get((stream, wish.request)) == sign):
            return False
        answer = Mailbox(self._store, stream).answer(wish.request)
        if answer is None or answer.outcome is not Outcome.FAILED:
            self._unanswered[stream, wish.request] = sign
        return answer is not None and answer.outcome is Outcome.FAILED

    def _status(self, catalogue: Catalogue, *, of_many: bool = False) -> StreamStatus:
        stream, newest = catalogue.stream, catalogue.newest_generation
        unstarted = StreamStatus(
            stream=stream,
            condition=Condition.NEVER_STARTED,
            text="it is deployed and was never started",
            deployed=catalogue.deployed_number,
            snapshots=len(catalogue.snapshots),
            newest_snapshot=catalogue.snapshots[0] if catalogue.snapshots else None,
        )
        if newest is None:
            return unstarted
        seen = self._seen(stream, newest.generation, of_many)
        facts = self._facts(catalogue, newest, seen)
        judgement = judge(facts)
        beat = seen.heartbeat if seen is not None else None
        return replace(
            unstarted,
            condition=judgement.condition,
            text=judgement.why,
            generation=newest.generation,
            by=newest.by,
            host=newest.host,
            started_ms=newest.at_ms,
            decision=newest.decision,
            state=beat.state if beat else None,
            heartbeat_age_s=round(seen.age_s, 3) if seen else None,
            heartbeat_fault=seen.fault if seen else None,
            current_age_s=round(seen.current_age_s, 3) if seen and seen.current_age_s is not None else None,
            process=beat.process if beat else None,
            process_sign=facts.process,
            log=newest.log,
            cause=beat.cause if beat else None,
            progress=beat.progress if beat else None,
            standing=beat.standing if beat else (),
            restarts=catalogue.last_restart.restart if catalogue.last_restart is not None else 0,
            last_failure=catalogue.last_restart.cause if catalogue.last_restart is not None else None,
            lost=self._lost(catalogue, newest, judgement, facts),
            stop_wanted=facts.stop_wanted,
            running_deployed=newest.deployed,
            parallelism=facts.settings["parallelism.default"],
        )

    def _facts(self, catalogue: Catalogue, newest: GenerationStarted, seen: Seen | None) -> LivenessFacts:
        beat = seen.heartbeat if seen is not None else None
        sign = (newest.generation, beat.counter, beat.state) if beat is not None else None
        return LivenessFacts(
            catalogue=catalogue,
            seen=seen,
            process=sign_of(beat.process if beat else None),
            claimed_age_s=self._lived.since_claimed_s(catalogue, newest) if seen is None else 0.0,
            watched_s=self._watch.unchanged_for(catalogue.stream, newest.generation, seen),
            stop_wanted=self.stop_wanted(catalogue, newest.generation, sign),
            settings=settings_of_newest(catalogue),
        )

    def _seen(self, stream: StreamName, generation: Generation, of_many: bool) -> Seen | None:
        """The heartbeat. One of many that cannot be read must not hide the stream: its age tells all the same."""
        try:
            return read_heartbeat(self._store, stream, generation)
        except StorageError as error:
            info = self._store.stat(StreamPaths(stream).heartbeat(generation)) if of_many else None
            if info is None:
                raise
            age_s = max(0.0, self._store.now() - info.modified)
            return Seen(stream, generation, None, age_s, str(error), info.modified)

    def _lost(
        self,
        catalogue: Catalogue,
        newest: GenerationStarted,
        judgement: Judgement,
        facts: LivenessFacts,
    ) -> Lost | None:
        if judgement.condition not in (Condition.LOST, Condition.FAILED) or facts.stop_wanted is not None:
            return None
        lives = self._lived.of_newest(catalogue, facts.seen)
        beat = facts.seen.heartbeat if facts.seen is not None else None
        if beat is not None and beat.given_up:
            verdict: RestartVerdict = GiveUp("its driver has given up")
        else:
            verdict = strategy_of(facts.settings).next_attempt(RestartFacts(catalogue.stream, lives))
        since_s = facts.seen.age_s if facts.seen is not None else facts.claimed_age_s
        due = max(0.0, verdict.delay_s - since_s) if isinstance(verdict, RestartAfter) else 0.0
        return Lost(
            stream=catalogue.stream,
            generation=newest.generation,
            reason=judgement.why,
            restart=verdict,
            due_in_s=round(due, 3),
        )


def settings_of_newest(catalogue: Catalogue) -> Settings:
    """The settings that the newest generation runs with."""
    newest = catalogue.newest_generation
    deployed = catalogue.deployed_at(newest.deployed) if newest is not None else catalogue.deployed
    return Settings(deployed.settings if deployed is not None else {})
