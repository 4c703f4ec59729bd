"""Every test but the slow ones, in two runs beside each other: `make test`.

Each of two processors has a run of its own: one all that needs neither Spark nor Airflow, beginning with the pure
tests, whose coverage is measured; the other what does, and the reversals of behaviours: both take about as long.
Both print as they go. A line begins with the run's number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
RUNS: Mapping[str, Sequence[str]] = {
    "1": (
        "-m",
        "not slow and not spark and not airflow and not reversals and not second_run",
        "--durations=10",
        "--pure-coverage",
    ),
    "2": ("-m", "not slow and (spark or airflow or reversals or second_run)", "--durations=10"),
}
ACCOUNT = "HEADGATE_CI_ACCOUNT"
"""Names the folder in which each run notes what it took."""
TEAR_DOWN_S = 60.0
"""How long a run has to end its servers and drivers when somebody stops it."""
_SUMMARY_WIDTH = 600
"""So much is repeated at the end of a line that says what is wrong: it may quote whole values."""


def run_all(repo: Path, runs: Mapping[str, Sequence[str]]) -> int:
    """Each of `runs`, arguments of pytest by their name, then what they cover together; 1 if anything is wrong."""
    with tempfile.TemporaryDirectory(prefix="headgate-tests-notes-") as folder:
        notes = {name: Path(folder) / f"{name}.json" for name in runs}
        started: dict[str, subprocess.Popen[str]] = {}
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored, by runs too
        printing = threading.Lock()
        wrong: dict[str, list[str]] = {name: [] for name in runs}
        tellers: list[threading.Thread] = []
        try:
            for name, arguments in runs.items():
                started[name] = _start(repo, name, notes[name], arguments)
                telling = (name, started[name], printing, wrong[name])
                tellers.append(threading.Thread(target=_tell, args=telling, daemon=True))
                tellers[-1].start()
            failed = [name for name, run in started.items() if run.wait()]
        finally:
            _stop(started.values())
        for teller in tellers:
            teller.join(TEAR_DOWN_S)
        noted = [str(path) for path in notes.values() if path.exists()]
        covered = subprocess.call([sys.executable, "-m", "tests.spec.listing", *noted], cwd=repo)
        for name in failed:  # at the very end, where it is seen
            print("\n    ".join([f"tests: run {name} failed", *wrong[name]]))
        return 1 if failed or covered or len(noted) < len(runs) else 0


def _start(repo: Path, name: str, notes: Path, arguments: Sequence[str]) -> subprocess.Popen[str]:
    own = ["--spec-notes", str(notes), "-o", f"cache_dir=.pytest_cache/{name}"]
    if account := os.environ.get(ACCOUNT):
        own += ["--account", f"{account}/tests-{name}.json"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments, *own],
        cwd=repo,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def _tell(name: str, run: subprocess.Popen[str], printing: threading.Lock, wrong: list[str]) -> None:
    """Its lines. Should they not be taken any more, the run is not left waiting for that: its next line fails it.

    What is wrong with it, by pytest's summary, is noted too: tests, with the line that says why, and coverage too low.
    """
    assert run.stdout is not None
    with run.stdout as lines, suppress(OSError):
        for line in lines:
            if line.startswith(("FAILED ", "ERROR ", "too low: ")):
                wrong.append(line.rstrip()[:_SUMMARY_WIDTH])
            with printing:
                print(f"{name}| {line.rstrip(chr(10))}", flush=True)


def _stop(runs: Iterable[subprocess.Popen[str]]) -> None:
    """As Ctrl-C would: each run tears down what it has started; what is left of it then is killed."""
    left = [run for run in runs if run.poll() is None]
    for run in left:
        run.send_signal(signal.SIGINT)
    for run in left:
        with suppress(subprocess.TimeoutExpired):
            run.wait(TEAR_DOWN_S)
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(run_all(REPO, RUNS))
