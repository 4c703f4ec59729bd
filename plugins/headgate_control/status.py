"""Looks at streams: gathers what liveness and the restart strategies judge, and puts it into one status each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import CorruptObject, HeadgateError, StreamUnknown
from headgate_contract.heartbeats import Seen, read_heartbeat, read_heartbeats
from headgate_contract.ids import Generation, StreamName
from headgate_contract.mailbox import Mailbox, Outcome
from headgate_contract.records import GenerationStarted, StopWanted
from headgate_contract.restart import GiveUp, Life, RestartAfter, RestartFacts, RestartVerdict, strategy_of
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.liveness import Judgement, LivenessFacts, confirm_after_s, judge
from headgate_control.outcomes import Condition, Lost, StreamStatus
from headgate_control.processes import sign_of
from headgate_control.watch import Watch

Heartbeats = Mapping[tuple[StreamName, Generation], Seen]
_AT_ONCE = 16


class Observer:
    """Looks at the streams of one root; two looks of the same observer confirm a silence."""

    def __init__(self, store: ObjectStore, catalogues: Catalogues, watch: Watch) -> None:
        self._store = store
        self._catalogues = catalogues
        self._watch = watch

    def status(self, stream: StreamName, *, confirm: bool = False) -> StreamStatus:
        """How `stream` is, UNREADABLE if its logs are; `confirm` as in look(). Raises StreamUnknown."""
        try:
            return self.look(stream, confirm=confirm)[0]
        except CorruptObject as error:
            return _unreadable(stream, error)

    def look(self, stream: StreamName, *, confirm: bool = False) -> tuple[StreamStatus, Catalogue]:
        """How `stream` is, and the catalogue that this rests on; `confirm` watches a silent one until it is clear.

        Raises StreamUnknown, and CorruptObject if a log cannot be read.
        """
        catalogue = self._catalogues.read(stream)
        found = self._status(catalogue, None)
        if not confirm or found.condition is not Condition.SILENT:
            return found, catalogue
        settings = settings_of_newest(catalogue)
        deadline = time.monotonic() + 1 + confirm_after_s(settings) + settings["heartbeat.timeout"].seconds
        while found.condition is Condition.SILENT and time.monotonic() < deadline:
            time.sleep(min(0.5, settings["heartbeat.interval"].seconds / 4))
            catalogue = self._catalogues.read(stream)
            found = self._status(catalogue, None)
        return found, catalogue

    def fleet(self, streams: Iterable[StreamName] | None = None) -> list[StreamStatus]:
        """The status of `streams`, or of every stream, with one listing of the heartbeats."""
        beats = read_heartbeats(self._store)
        if streams is not None:
            names = list(streams)
        else:
            names = sorted({*self._catalogues.names(kept=True), *(stream for stream, _ in beats)})
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = pool.map(lambda name: self._glance(name, beats), names)
            return [status for status in found if status is not None]

    def _glance(self, stream: StreamName, beats: Heartbeats) -> StreamStatus | None:
        """One of many: what is wrong with this stream must not hide the others; None if it was never deployed."""
        try:
            return self._status(self._catalogues.read(stream), beats)
        except StreamUnknown:
            return None
        except HeadgateError as error:
            return _unreadable(stream, error)

    def stop_wanted(self, catalogue: Catalogue, generation: Generation) -> StopWanted | None:
        """The newest wish to stop `generation` that stands: its driver has not answered that it cannot."""
        mailbox = Mailbox(self._store, catalogue.stream)
        return next((wish for wish in catalogue.stops_wanted(generation) if not _failed(mailbox, wish)), None)

    def _status(self, catalogue: Catalogue, beats: Heartbeats | None) -> StreamStatus:
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
        seen = self._seen(stream, newest.generation, beats)
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
            process=beat.process if beat else None,
            process_sign=facts.process,
            log=newest.log,
            cause=beat.cause if beat else None,
            progress=beat.progress if beat else None,
            restarts=len(catalogue.restarts),
            last_failure=catalogue.restarts[-1].cause if catalogue.restarts else None,
            lost=self._lost(catalogue, newest, judgement, facts, beats),
            stop_wanted=facts.stop_wanted,
            running_deployed=newest.deployed,
        )

    def _facts(self, catalogue: Catalogue, newest: GenerationStarted, seen: Seen | None) -> LivenessFacts:
        beat = seen.heartbeat if seen is not None else None
        return LivenessFacts(
            catalogue=catalogue,
            seen=seen,
            process=sign_of(beat.process if beat else None),
            claimed_age_s=self._claimed_age_s(catalogue, newest.generation) if seen is None else 0.0,
            watched_s=self._watch.unchanged_for(catalogue.stream, newest.generation, seen),
            stop_wanted=self.stop_wanted(catalogue, newest.generation),
            settings=settings_of_newest(catalogue),
        )

    def _seen(self, stream: StreamName, generation: Generation, beats: Heartbeats | None) -> Seen | None:
        return read_heartbeat(self._store, stream, generation) if beats is None else beats.get((stream, generation))

    def _claimed_age_s(self, catalogue: Catalogue, generation: Generation) -> float:
        written = self._catalogues.slots_written(catalogue.stream)
        return max(0.0, self._store.now() - written.get(_slot_of(catalogue, generation), 0.0))

    def _lost(
        self,
        catalogue: Catalogue,
        newest: GenerationStarted,
        judgement: Judgement,
        facts: LivenessFacts,
        beats: Heartbeats | None,
    ) -> Lost | None:
        if judgement.condition not in (Condition.LOST, Condition.FAILED) or facts.stop_wanted is not None:
            return None
        lives, now = self._lives(catalogue, newest, beats)
        beat = facts.seen.heartbeat if facts.seen is not None else None
        if beat is not None and beat.given_up:
            verdict: RestartVerdict = GiveUp("its driver has given up")
        else:
            verdict = strategy_of(facts.settings).next_attempt(RestartFacts(catalogue.stream, lives))
        since_s = now - lives[-1].ended_s
        due = max(0.0, verdict.delay_s - since_s) if isinstance(verdict, RestartAfter) else 0.0
        return Lost(
            stream=catalogue.stream,
            generation=newest.generation,
            reason=judgement.why,
            restart=verdict,
            due_in_s=round(due, 3),
        )

    def _lives(
        self, catalogue: Catalogue, newest: GenerationStarted, beats: Heartbeats | None
    ) -> tuple[tuple[Life, ...], float]:
        """The generations since a person last started the stream, and the storage's now."""
        written = self._catalogues.slots_written(catalogue.stream)
        now = self._store.now()
        lives: list[Life] = []
        following = now
        for start in reversed(catalogue.generations):
            begun = written.get(_slot_of(catalogue, start.generation), 0.0)
            seen = self._seen(catalogue.stream, start.generation, beats)
            # A frozen driver may wake and beat on after its successor has started: its life had ended by then.
            ended = begun if seen is None else min(now - seen.age_s, following)
            lives.append(Life(start.generation, begun, max(begun, ended)))
            following = begun
            if start.replaces is None:
                break
        return tuple(reversed(lives)), now


def _unreadable(stream: StreamName, error: HeadgateError) -> StreamStatus:
    return StreamStatus(stream=stream, condition=Condition.UNREADABLE, text=str(error))


def _failed(mailbox: Mailbox, wish: StopWanted) -> bool:
    answer = mailbox.answer(wish.request) if wish.request is not None else None
    return answer is not None and answer.outcome is Outcome.FAILED


def settings_of_newest(catalogue: Catalogue) -> Settings:
    """The settings that the newest generation runs with."""
    newest = catalogue.newest_generation
    deployed = catalogue.deployed_at(newest.deployed) if newest is not None else catalogue.deployed
    return Settings(deployed.settings if deployed is not None else {})


def _slot_of(catalogue: Catalogue, generation: Generation) -> int:
    return next(
        slot.number
        for slot in catalogue.slots
        if isinstance(slot.record, GenerationStarted) and slot.record.generation == generation
    )
