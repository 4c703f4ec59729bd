"""A driver without Spark: it speaks the contract as the real one does, and misbehaves as its job file says.

The job file is run as Python, so that one which does not import fails as it would in the real driver. It may set
MODE, or have a function of that name choose it by the settings: `runs` (the default), `exits` (code 3), `mute` (no
heartbeat of its own), `says-failed`, `fails-later`, `slow` (restores, beating, until MARK exists), `stuck` (restores
and says nothing more), `deaf` (answers nothing), `no-savepoints` (they fail), `dies-at-stop` (after the snapshot,
before the end), `checkpoints` (one with each heartbeat, of which one is kept: the files of the others are deleted).
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import SlotTaken, StorageError
from headgate_contract.heartbeats import Heartbeat, Progress, StreamState, write_heartbeat
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName, VertexUid
from headgate_contract.log import Slot
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.process import identify
from headgate_contract.records import (
    GenerationStarted,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    decision_log,
    slot_log,
)
from headgate_contract.root_store import open_root
from headgate_contract.settings import Settings
from headgate_contract.snapshot import (
    SnapshotKind,
    SnapshotMetadata,
    SnapshotRef,
    SourceState,
    StateHandle,
)
from headgate_contract.store import ObjectStore


def complete_snapshot(
    store: ObjectStore,
    catalogue: Catalogue,
    generation: Generation,
    *,
    name: str | None = None,
    request: RequestId | None = None,
    committed: bool = True,
    retires: tuple[CheckpointId, ...] = (),
    **fields: Any,
) -> SnapshotRef:
    """Write a whole snapshot with one state file (`fields`: what more it has), and its slot. Raises SlotTaken."""
    number, paths = catalogue.next_checkpoint, StreamPaths(catalogue.stream)
    savepoint = SavepointName(name) if name else None
    folder = paths.savepoint(savepoint, number, generation) if savepoint else paths.checkpoint(number, generation)
    content = f"positions of snapshot {number}\n".encode()
    state = "positions.bin" if savepoint else paths.shared_file(f"positions-{number}-g{generation}.bin")
    store.create(f"{folder}/{state}" if savepoint else state, content)
    kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
    metadata = SnapshotMetadata(
        stream=catalogue.stream,
        id=number,
        generation=generation,
        kind=kind,
        max_parallelism=128,
        created_ms=0,
        name=savepoint,
        sources={
            VertexUid("lines"): SourceState(
                name="lines",
                kind="files",
                position={"offset": int(number)},
                files=(StateHandle("positions", state, len(content), wire.sha256(content)),),
            )
        },
    )
    data = replace(metadata, **fields).encode()
    store.create(f"{folder}/{METADATA}", data)
    ref = SnapshotRef(number, kind, generation, folder, len(data), wire.sha256(data), savepoint)
    record = SnapshotCompleted(
        generation=generation,
        snapshot=ref,
        committed=(number,) if committed else (),
        retires=retires,
        request=request,
    )
    slot_log(store, catalogue.stream).append(catalogue.newest_slot, record)
    return ref


@dataclass
class StandinDriver:
    """One life."""

    store: ObjectStore
    stream: StreamName
    generation: Generation
    settings: Settings
    mode: str
    mark: Path
    beat: Heartbeat
    asked_to_stop: bool = False

    def live(self) -> None:
        self.say(StreamState.RESTORING)
        if self.mode == "says-failed":
            self.say(StreamState.FAILED, cause="the source directory in/ does not exist")
            return
        while self.mode == "stuck":
            time.sleep(0.1)
        while self.mode == "slow" and not self.mark.exists():
            self.breathe()
        self.say(StreamState.RUNNING)
        mailbox = Mailbox(self.store, self.stream)
        while not self.asked_to_stop:
            self.breathe()
            if self.mode == "checkpoints":
                self.snapshot(None, None, None)
            if self.mode == "fails-later" and self.mark.exists():
                self.say(StreamState.FAILED, cause="BatchFailed: batch 7 failed")
                sys.exit(1)
            requests = [] if self.mode == "deaf" else mailbox.open_requests()
            for request in requests:
                if isinstance(request, Request) and self.handle(request, mailbox):
                    return
        self.end("SIGTERM", None)

    def handle(self, request: Request, mailbox: Mailbox) -> bool:
        """Carry out a request; True if it ends the driver."""
        ends = request.kind in (RequestKind.STOP, RequestKind.CANCEL)
        name = request.args.get("savepoint" if ends else "name")
        if name and self.mode == "no-savepoints":
            self.reply(mailbox, request, Outcome.FAILED, why="a state file could not be written")
            return False
        try:
            if target := request.args.get("target_directory"):
                directory = self.store.elsewhere(target)
                directory.make()
                directory.create(f"{name}/{METADATA}", b"")
        except StorageError as error:
            self.reply(mailbox, request, Outcome.FAILED, why=error.what)
            return False
        result: Mapping[str, Any] = {}
        taken: CheckpointId | None = None
        keep = request.args.get("keep")
        if keep is not None and keep not in [ref.id for ref in (*self.logs().snapshots, *self.logs().claimed)]:
            self.reply(mailbox, request, Outcome.FAILED, why=f"snapshot {keep} is not retained any more")
            return False
        if request.kind is not RequestKind.CANCEL:
            ref = self.snapshot(name, request.id, keep)
            result, taken = {"snapshot": int(ref.id), "name": ref.name, "folder": ref.folder}, ref.id
        if self.mode == "dies-at-stop":
            os.kill(os.getpid(), signal.SIGKILL)
        if ends:
            self.end(f"{request.kind.value} by {request.by}", request.id, taken)
        self.reply(mailbox, request, Outcome.DONE, result)
        return ends

    def snapshot(self, name: str | None, request: RequestId | None, keep: int | None) -> SnapshotRef:
        """Complete one; in the mode `checkpoints` it subsumes all but `keep`."""
        logs = self.logs()
        gone = [ref for ref in logs.snapshots if self.mode == "checkpoints" and not ref.name and ref.id != keep]
        retires = () if name else tuple(sorted(ref.id for ref in gone))
        ref = complete_snapshot(self.store, logs, self.generation, name=name, request=request, retires=retires)
        for old in gone if not name else ():
            self.store.delete_all(old.folder)
            self.store.delete(StreamPaths(self.stream).shared_file(f"positions-{old.id}-g{old.generation}.bin"))
        return ref

    def reply(
        self,
        mailbox: Mailbox,
        request: Request,
        outcome: Outcome,
        result: Mapping[str, Any] | None = None,
        why: str = "",
    ) -> None:
        answer = Answer(
            id=request.id, outcome=outcome, result=result or {}, why=why, generation=self.generation, at_ms=0
        )
        mailbox.reply(answer)

    def end(self, reason: str, request: RequestId | None, snapshot: CheckpointId | None = None) -> None:
        self.say(StreamState.STOPPING)
        slot_log(self.store, self.stream).append(
            self.logs().newest_slot,
            Stopped(generation=self.generation, reason=reason, snapshot=snapshot, request=request),
        )
        self.say(StreamState.STOPPED)

    def logs(self) -> Catalogue:
        slots: tuple[Slot[SlotRecord], ...] = slot_log(self.store, self.stream).read()
        return Catalogue(self.stream, slots, decision_log(self.store, self.stream).read())

    def breathe(self) -> None:
        time.sleep(self.settings["heartbeat.interval"].seconds)
        self.say(self.beat.state)

    def say(self, state: StreamState, cause: str | None = None) -> None:
        newest = self.logs().newest_generation
        if newest is None or newest.generation != self.generation:
            state = StreamState.FENCED
        self.beat = replace(self.beat, counter=self.beat.counter + 1, state=state, cause=cause)
        write_heartbeat(self.store, self.beat)
        if state is StreamState.FENCED:
            sys.exit(4)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--root", "--root-id", "--stream", "--generation", "--launch", "--work"):
        parser.add_argument(option, required=True)
    given = parser.parse_args()
    options = json.loads(os.environ.get("HEADGATE_ROOT_OPTIONS") or "{}")
    store, stream = open_root(given.root, options, given.root_id), StreamName(given.stream)
    newest = slot_log(store, stream).read()[-1].record
    assert isinstance(newest, GenerationStarted)
    assert (str(newest.generation), newest.launch) == (given.generation, given.launch)
    decisions = decision_log(store, stream).read()
    deployed = Catalogue(stream, (), decisions).deployed_at(newest.deployed)
    assert deployed is not None
    print(f"cwd {os.getcwd()}", *(f"{name}={value}" for name, value in os.environ.items()), sep="\n", flush=True)
    job = runpy.run_path(deployed.job)
    settings = Settings(deployed.settings)
    chosen = job.get("MODE", "runs")
    mode = chosen(settings) if callable(chosen) else chosen
    if mode == "exits":
        print("ERROR the port 4040 is taken", file=sys.stderr)
        sys.exit(3)
    beat = Heartbeat(
        stream=stream,
        generation=newest.generation,
        counter=0,
        state=StreamState.LAUNCHED,
        at_ms=0,
        interval_ms=settings["heartbeat.interval"],
        process=identify(),
        log=newest.log,
        progress=Progress(),
    )
    mark = Path(deployed.directory) / "mark"
    driver = StandinDriver(store, stream, newest.generation, settings, mode, mark, beat)

    def stop(*_: object) -> None:
        driver.asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    if mode == "mute":
        threading.Event().wait(600)
    try:
        driver.live()
    except SlotTaken:
        driver.say(StreamState.FENCED)


if __name__ == "__main__":
    main()
