"""Every test but the slow ones, in two runs beside each other: `make test`.

Each of two processors has a run of its own: one all that needs no Spark, beginning with the pure tests, whose
coverage is measured; the other what starts Spark. Both print as they go. A line begins with the run's number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
RUNS = {"1": ("not slow and not spark", "--pure-coverage"), "2": ("not slow and spark",)}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headgate-tests-notes-") as folder:
        notes = {name: Path(folder) / f"{name}.json" for name in RUNS}
        runs = {name: _start(notes[name], *arguments) for name, arguments in RUNS.items()}
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        printing = threading.Lock()
        tellers = [threading.Thread(target=_tell, args=(name, run, printing)) for name, run in runs.items()]
        try:
            for teller in tellers:
                teller.start()
            codes = {name: run.wait() for name, run in runs.items()}
            for teller in tellers:
                teller.join()
        finally:
            for run in runs.values():
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGTERM)
        if any(codes.values()):
            print(f"tests: run {', '.join(name for name, code in codes.items() if code)} failed")
            return 1
        return subprocess.call([sys.executable, "-m", "tests.spec.listing", *map(str, notes.values())], cwd=REPO)


def _start(notes: Path, marks: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-m", marks, "--durations=10", "--spec-notes", str(notes), *arguments]
    return subprocess.Popen(
        command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _tell(name: str, run: subprocess.Popen[str], printing: threading.Lock) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        with printing:
            print(f"{name}| {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
