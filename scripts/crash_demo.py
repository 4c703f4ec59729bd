"""Kills a stream's driver again and again, at moments that a seed chooses, and checks every record of its output."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "plugins")]

import pyarrow.parquet as pq  # noqa: E402

from headgate_contract.errors import HeadgateError  # noqa: E402
from headgate_contract.heartbeats import Heartbeat  # noqa: E402
from headgate_control.outcomes import Launched  # noqa: E402
from tests.crash.checker import check  # noqa: E402
from tests.crash.fire import StreamUnderFire, kill_group, send, wait_gone  # noqa: E402
from tests.crash.truth import write_input  # noqa: E402

BACKENDS = ("hashmap", "rocksdb")
SLOW = {"execution.checkpointing.interval": "4 s"}
QUICK = {"execution.checkpointing.interval": "700 ms", "headgate.trigger-interval": "40 ms"}
"""The stand-in for Spark is paced, or the records would be gone before the kills."""


def main() -> int:
    arguments = _arguments()
    backends = BACKENDS if arguments.backend == "both" else (arguments.backend,)
    kills = replays = 0
    failed = False
    for backend in backends:
        base = Path(tempfile.mkdtemp(prefix=f"headgate-crash-{backend}-"))
        story: Story | None = None
        try:
            story = Story(arguments, backend, base)
            ok = story.run()
        except (AssertionError, HeadgateError) as error:
            print(f"{backend}: {error}", flush=True)
            ok = False
        finally:
            if story is not None:
                story.end()
                kills, replays = kills + story.kills, replays + story.replays
            if not arguments.keep:
                shutil.rmtree(base, ignore_errors=True)
        failed = failed or not ok
    if failed:
        print(f"crash demo: FAILED, seed {arguments.seed}, {kills} kills, {replays} replays")
        return 1
    print(f"crash demo: OK, {kills} kills, {replays} replays, 0 lost, 0 doubled")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20, help="for each backend")
    parser.add_argument("--backend", choices=(*BACKENDS, "both"), default="both")
    parser.add_argument("--break", dest="fault", default="", help="plant a fault: the demo must then fail")
    parser.add_argument("--engine", choices=("spark", "stand-in"), default="spark")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="leave the files")
    return parser.parse_args()


class Story:
    """One backend's run."""

    def __init__(self, arguments: argparse.Namespace, backend: str, base: Path) -> None:
        self._arguments = arguments
        self._backend = backend
        self._random = random.Random(f"{arguments.seed}/{backend}")
        self._quick = arguments.engine == "stand-in"
        self._longest = 1.5 if self._quick else 3.0
        environment = {"HEADGATE_TEST_BREAK": arguments.fault}
        self._stream = StreamUnderFire(
            base,
            engine=arguments.engine,
            backend=backend,
            environment=environment,
            settings=QUICK if self._quick else SLOW,
            files_per_batch=1 if self._quick else 2,
        )
        self._launched: Launched | None = None
        self._reached = 0
        self._rows: list[int] = []
        """Of the files, in their order."""
        self._given = 0
        """So many of them the source has been given."""
        self.kills = 0
        self.replays = 0

    def run(self) -> bool:
        """Start, kill, restore, ..., let it finish, check."""
        files = 100 * self._arguments.kills if self._quick else 80 * self._arguments.kills
        self._say(f"{self._arguments.records} records in {files} files, seed {self._arguments.seed}")
        self._stream.given.mkdir()
        write_input(
            self._stream.held_back, seed=self._arguments.seed, records=self._arguments.records, files=files, keys=20_000
        )
        self._rows = [pq.read_metadata(path).num_rows for path in sorted(self._stream.held_back.iterdir())]
        self._stream.deploy()
        for number in range(1, self._arguments.kills + 1):
            # With a planted fault nobody waits for there to be something to lose: there is as much as there can be.
            self._give(files if self._arguments.fault else files * number // (self._arguments.kills + 1))
            self._one_kill(number)
        self._give(files)
        self._stream.files_per_batch = 100
        launched = self._start("final life")
        last = self._stream.wait(
            launched.generation, lambda beat: beat.progress.records >= self._arguments.records, timeout_s=600
        )
        self._stream.control().stop(self._stream.name)
        wait_gone(launched.process.pid)
        self._say(f"{last.progress.records} records handed over, in {launched.generation} generations")
        verdict = check(self._stream.given, self._stream.output)
        self._say(str(verdict))
        if 4 * self.replays < 3 * self.kills:
            self._say(f"only {self.replays} of {self.kills} kills made it replay records: that proves too little")
            return False
        return verdict.ok

    def end(self) -> None:
        """Leave nothing running."""
        if self._launched is not None and Path(f"/proc/{self._launched.process.pid}").exists():
            kill_group(self._launched)

    def _one_kill(self, number: int) -> None:
        """Most kills come when something is not in a checkpoint yet, some at any moment, some while it starts.

        With a planted fault nearly all come at any moment: what it does wrong may be within a checkpoint.
        """
        often = (1, 18, 1) if self._arguments.fault else (18, 1, 1)
        moment = self._random.choices(("with work to lose", "at any moment", "while it starts"), often)[0]
        delay = self._random.uniform(0.2, self._longest if moment != "at any moment" else 4 * self._longest)
        launched = self._start(f"kill {number} of {self._arguments.kills}", wait=moment != "while it starts")
        if moment != "while it starts":
            self._stream.wait(launched.generation, lambda beat: beat.progress.batches > 0)
        time.sleep(delay)
        if moment == "with work to lose":
            newest = self._wait(launched, lambda beat: True).progress.checkpoints
            self._wait(launched, lambda beat: beat.progress.checkpoints > newest)
            self._wait(launched, lambda beat: self._has_work_to_lose(launched, beat))
        kill_group(launched)
        self.kills += 1
        beat = self._stream.beat(launched.generation)
        self._reached = max(self._reached, beat.progress.records if beat is not None else 0)
        self._say(f"kill {number}: {moment}, after {delay:.2f} s, {self._reached} records handed over")

    def _give(self, files: int) -> None:
        """From now on the source has so many files at least."""
        if files > self._given:
            self._stream.give(files - self._given)
            self._given = min(files, len(self._rows))

    def _wait(self, launched: Launched, condition: Callable[[Heartbeat], bool]) -> Heartbeat:
        """However slow the machine is, there is something to read meanwhile: without it there is no checkpoint."""

        def met(beat: Heartbeat) -> bool:
            if condition(beat):
                return True
            if beat.progress.records >= sum(self._rows[: self._given]):
                self._give(self._given + 10)
            return False

        return self._stream.wait(launched.generation, met)

    def _has_work_to_lose(self, launched: Launched, beat: Heartbeat) -> bool:
        """If so it is frozen, so that nothing completes until it is killed."""
        if beat.progress.records <= self._stream.newest_snapshot_records():
            return False
        send(launched, signal.SIGSTOP)
        if beat.progress.records > self._stream.newest_snapshot_records():
            return True
        send(launched, signal.SIGCONT)
        return False

    def _start(self, what: str, *, wait: bool = True) -> Launched:
        """Start the next generation; what it must replay is what the killed one had reached beyond the snapshot."""
        self._launched = launched = self._stream.start(wait=wait)
        restored = self._stream.records_of(launched.decision)
        replayed = max(0, self._reached - restored)
        self.replays += 1 if replayed else 0
        self._reached = restored
        self._say(f"{what}: generation {launched.generation}: {launched.decision.reason}; {replayed} records to replay")
        return launched

    def _say(self, text: str) -> None:
        print(f"{self._backend}: {text}", flush=True)


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    sys.exit(main())
