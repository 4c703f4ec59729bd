"""The main job as a story: Airflow runs a word count on Spark, its driver is killed, it comes back, no word is lost.

Everything runs here, from defaults: SQLite, LocalExecutor, local[2], local files below work/demo. KEEP=1 leaves Airflow
running at the end. Ctrl-C cleans up.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "plugins")]

import pyarrow.dataset as ds  # noqa: E402

from headgate_contract.catalogue import Catalogue, read_catalogue  # noqa: E402
from headgate_contract.errors import HeadgateError, ObjectMissing  # noqa: E402
from headgate_contract.heartbeats import Heartbeat, StreamState, read_heartbeat  # noqa: E402
from headgate_contract.ids import StreamName  # noqa: E402
from headgate_contract.paths import METADATA  # noqa: E402
from headgate_contract.restore import RestoreFrom  # noqa: E402
from headgate_contract.snapshot import SnapshotKind, SnapshotRef, read_metadata  # noqa: E402
from headgate_contract.store import open_store  # noqa: E402
from headgate_control.processes import kill_group, wait_gone  # noqa: E402
from scripts.airflow_local import LocalAirflow, LocalAirflowFailed  # noqa: E402
from scripts.text_server import TextServer, make_text  # noqa: E402

STREAM = StreamName("word_count")
WORDS = int(os.environ.get("DEMO_WORDS", "150000"))
RATE = float(os.environ.get("DEMO_RATE", "2000"))
NEEDED_DISK = 2 << 30
STREAMS_YAML = """\
streams:
  word_count:
    job: {job}
    directory: {directory}
    savepoint: "0 3 * * *"
    settings:
      execution.checkpointing.interval: 4 s
      execution.checkpointing.num-retained: 3
      heartbeat.interval: 1 s
      heartbeat.timeout: 8 s
      restart-strategy.type: fixed-delay
      restart-strategy.fixed-delay.attempts: 10
      restart-strategy.fixed-delay.delay: 0 s
"""


class DemoFailed(Exception):
    """The story did not end as it must; the message says where."""


def check_machine() -> None:
    """Say what is missing before anything is started."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise DemoFailed(
            f"there is no `java` {where}: install Java 17 (Debian: apt-get install openjdk-17-jre-headless)"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise DemoFailed(f"Spark 4 needs Java 17 or newer; `java -version` says: {said.splitlines()[:1]}")
    free = shutil.disk_usage(REPOSITORY).free
    if free < NEEDED_DISK:
        raise DemoFailed(f"the demo needs 2 GB of disk, {REPOSITORY} has {free >> 20} MB free: make room")


@dataclass
class Demo:
    """The story and what it needs; `end` may be called at any moment."""

    base: Path
    begun: float = field(default_factory=time.monotonic)
    airflow: LocalAirflow | None = None
    server: TextServer | None = None

    def __post_init__(self) -> None:
        self.root = self.base / "storage"
        self.out = self.base / "counts"
        self.store = open_store(str(self.root))

    # ---- telling

    def tell(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", flush=True)

    def wait(self, what: str, condition: Callable[[], Any], timeout_s: float = 120) -> Any:
        """Wait until `condition` gives something; a line now and then shows that it lives."""
        begun = shown = time.monotonic()
        while not (found := condition()):
            now = time.monotonic()
            if now - begun > timeout_s:
                raise DemoFailed(f"{what}: not within {timeout_s:.0f} s{self._why()}")
            if now - shown > 10:
                shown = now
                self.tell(f"  ... waiting: {what}; {self._progress()}")
            time.sleep(0.2)
        return found

    def _progress(self) -> str:
        beat = self.beat()
        if beat is None:
            return "no driver yet"
        return f"generation {beat.generation} is {beat.state.value}, {beat.progress.records} words counted"

    def _why(self) -> str:
        beat = self.beat()
        return (
            f"; generation {beat.generation} says: {beat.cause}; its log is {beat.log}" if beat and beat.cause else ""
        )

    # ---- looking

    def catalogue(self) -> Catalogue:
        return read_catalogue(self.store, STREAM)

    def beat(self) -> Heartbeat | None:
        newest = self.catalogue().newest_generation
        seen = read_heartbeat(self.store, STREAM, newest.generation) if newest is not None else None
        return seen.heartbeat if seen is not None else None

    def running(self, generation: int) -> Heartbeat | None:
        beat = self.beat()
        return beat if beat and beat.generation >= generation and beat.state is StreamState.RUNNING else None

    def checkpoints(self) -> list[SnapshotRef]:
        return [ref for ref in self.catalogue().completed if ref.kind is SnapshotKind.CHECKPOINT]

    def records_of(self, ref: SnapshotRef) -> int:
        path = f"{ref.folder}/{METADATA}"
        return read_metadata(self.store.read(path), path).records

    # ---- the story

    def run(self) -> str:
        """Tell it to its end; the last line."""
        self.begin()
        airflow = self.airflow
        assert airflow is not None and self.server is not None  # noqa: PT018
        self.tell("starting the stream by a run of the DAG headgate_start (it deploys word_count.py first)")
        self.dag_run("headgate_start", {"stream": STREAM, "deploy": True})
        beat = self.wait("the stream runs", lambda: self.running(1))
        self.tell(f"generation 1 runs: pid {beat.process.pid}, its log is {beat.log}")
        self.wait("two checkpoints", lambda: len(self.checkpoints()) >= 2)
        self.tell(f"checkpoints complete: {', '.join(str(ref.id) for ref in self.checkpoints())}")
        self.tell("taking a savepoint by a run of the DAG headgate_savepoint")
        self.dag_run("headgate_savepoint", {"stream": STREAM, "name": "before-the-crash"})
        self.server.go_on()
        self.kill()
        self.wait("the lost-stream asset starts headgate_restore, and the stream runs again", lambda: self.running(2))
        newest = self.catalogue().newest_generation
        assert newest is not None
        self.tell(f"generation {newest.generation} runs, started by {newest.by}: {newest.decision.reason}")
        self.wait("every word is sent and counted", self.all_counted, timeout_s=WORDS / RATE + 120)
        self.tell("stopping with a savepoint by a run of the DAG headgate_stop")
        self.dag_run("headgate_stop", {"stream": STREAM, "how": "savepoint", "name": "the-end"})
        return self.compare()

    def begin(self) -> None:
        """Files, text server, Airflow; what an earlier demo left running ends first."""
        if (self.base / "airflow").exists():
            self.airflow = LocalAirflow(self.base / "airflow")
            self.end()
        shutil.rmtree(self.base, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.root.mkdir()
        self.store.check_writable()
        streams = self.base / "streams.yaml"
        job = REPOSITORY / "spark_jobs" / "jobs" / "word_count.py"
        streams.write_text(STREAMS_YAML.format(job=job, directory=self.base))
        self.server = TextServer(make_text(seed=7, total_words=WORDS), words_per_second=RATE)
        self.server.hold_at(WORDS / 2)  # however long Airflow takes, there are words to lose when the driver is killed
        self.tell(f"a text server on 127.0.0.1:{self.server.port} will send {WORDS} words, {RATE:.0f} a second")
        self.tell("starting Airflow: API server, scheduler, DAG processor, triggerer")
        self.airflow = LocalAirflow(
            home=self.base / "airflow",
            environment={
                "HEADGATE_STREAMS_FILE": str(streams),
                "HEADGATE_ROOT": str(self.root),
                "HEADGATE_WORK": str(self.base / "work"),
                "WORDS_PORT": str(self.server.port),
                "WORDS_OUT": str(self.out),
            },
            say=lambda line: self.tell(f"  {line}"),
        )
        self.airflow.start()
        self.tell(f"Airflow is healthy at {self.airflow.url}")

    def dag_run(self, dag: str, conf: dict[str, object]) -> None:
        assert self.airflow is not None
        run = self.airflow.trigger_dag(dag, conf)
        done = threading.Event()

        def show() -> None:
            while not done.wait(10):
                self.tell(f"  ... {dag} is under way; {self._progress()}")

        teller = threading.Thread(target=show, daemon=True)
        teller.start()
        try:
            self.airflow.wait_run(dag, run, timeout_s=180)
        finally:
            done.set()
            teller.join()
        self.tell(f"{dag}: success")

    def kill(self) -> None:
        """SIGKILL to the driver's process group, while it has counted words that no checkpoint holds yet."""

        def work_to_lose() -> Heartbeat | None:
            beat = self.running(1)
            try:
                safe = self.records_of(self.catalogue().snapshots[0])
            except ObjectMissing:
                return None  # retired while we looked
            return beat if beat is not None and beat.progress.records > safe else None

        beat = self.wait("words that no checkpoint holds yet", work_to_lose)
        assert beat.process is not None
        self.tell(f"SIGKILL to the driver's process group {beat.process.pid}, {beat.progress.records} words counted")
        os.killpg(beat.process.pid, signal.SIGKILL)

    def all_counted(self) -> bool:
        assert self.server is not None
        beat = self.running(2)
        return self.server.complete and beat is not None and beat.progress.records >= WORDS

    # ---- the truth

    def compare(self) -> str:
        """Lines sent, lines logged and words counted against the truth, which the text server knows by itself."""
        assert self.server is not None
        facts = self.server.facts()
        seen = ds.dataset(sorted(str(path) for path in self.out.glob("*.parquet")), format="parquet").to_table()
        counted: Counter[str] = Counter()
        for word, number in zip(seen["word"].to_pylist(), seen["n"].to_pylist(), strict=True):
            counted[word] = max(counted[word], number)
        logged = self.logged()
        self.tell(f"lines sent {facts['lines']}, lines logged {logged}, words sent {facts['words']}")
        self.tell(f"words counted {sum(counted.values())}, different words {len(counted)}")
        if counted != Counter(facts["counts"]):
            wrong = {word for word in {*counted, *facts["counts"]} if counted[word] != facts["counts"].get(word, 0)}
            raise DemoFailed(f"{len(wrong)} words have a wrong count, for instance {sorted(wrong)[:5]}")
        if logged != facts["lines"]:
            raise DemoFailed(f"{facts['lines']} lines were sent, {logged} are in the source's log")
        catalogue = self.catalogue()
        savepoints = [ref for ref in catalogue.completed if ref.kind is SnapshotKind.SAVEPOINT]
        restores = [start for start in catalogue.generations if isinstance(start.decision, RestoreFrom)]
        beat = self.beat()
        replayed = beat.progress.replayed if beat is not None else 0
        if not restores or not replayed:
            raise DemoFailed(f"{len(restores)} restores and {replayed} records replayed: that proves nothing")
        return (
            f"demo: OK, {sum(counted.values())} words counted exactly once, {len(self.checkpoints())} checkpoints, "
            f"{len(savepoints)} savepoints, {len(restores)} restores, {replayed} records replayed"
        )

    def logged(self) -> int:
        """The lines in the source's log, as far as each segment counts."""
        from headgate_contract import wire

        folder = self.root / "streams" / STREAM / "logs" / "lines"
        headers: dict[int, dict[str, Any]] = {
            int(path.stem): wire.decode("segment", path.read_bytes(), dict, str(path)) for path in folder.glob("*.json")
        }
        newest, length, total = max(headers), None, 0
        while newest is not None:
            data = (folder / f"{newest:08d}.lines").read_bytes()
            total += data[:length].count(b"\n")
            newest, length = headers[newest]["follows"], headers[newest]["length"]
        return total

    # ---- the end

    def end(self, keep_airflow: bool = False) -> None:
        """Stop whatever of it runs."""
        if self.airflow is not None and not keep_airflow:
            self.tell("stopping Airflow")
            self.airflow.stop()
        try:
            beats = [read_heartbeat(self.store, STREAM, start.generation) for start in self.catalogue().generations]
        except HeadgateError:
            beats = []
        for seen in beats:
            process = seen.heartbeat.process if seen is not None and seen.heartbeat is not None else None
            if process is not None and kill_group(process):
                wait_gone(process, 10)
        if self.server is not None:
            self.server.close()


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep = os.environ.get("KEEP", "") not in ("", "0")
    demo: Demo | None = None
    kept = False
    try:
        check_machine()
        demo = Demo(REPOSITORY / "work" / "demo")
        last = demo.run()
        kept = keep
    except KeyboardInterrupt:
        print("\ndemo: interrupted, cleaning up", flush=True)
        return 130
    except (DemoFailed, LocalAirflowFailed, HeadgateError, AssertionError) as error:
        print(f"demo: FAILED: {error}", flush=True)
        return 1
    finally:
        if demo is not None:
            demo.end(keep_airflow=kept)
    if kept and demo.airflow is not None:
        airflow = demo.airflow
        print(f"Airflow stays at {airflow.url}, user {airflow.user}, password {airflow.password}")
        print(f"stop it with: .venv/bin/python scripts/airflow_local.py stop {airflow.home}")
    print(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
