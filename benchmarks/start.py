"""What the archive of Spark's classes gains: `make bench-start`.

A process starts a session and runs the first micro-batches of three small streams, with the archive and without, in
turns. Told is the median of each, and their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from headgate.spark import class_archive

PROGRAM = """
import sys, time
began = time.monotonic()
from pathlib import Path
from headgate.spark.session import start_session
from headgate.spark.warm_up import first_batches
from headgate_contract.settings import Settings
session = start_session("start", Settings({}), Path(sys.argv[1]) / "work")
started = time.monotonic()
first_batches(session, Path(sys.argv[1]))
print(started - began, time.monotonic() - began)
session.stop()
"""


def start(cache: str | None) -> tuple[float, float]:
    """Seconds until there is a session, and until the first micro-batches have run."""
    environment = {**os.environ, **({} if cache is None else {"HEADGATE_CACHE": cache})}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder], env=environment, capture_output=True, text=True, check=True
        )
    session, batches = map(float, done.stdout.split())
    return session, batches


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"the archive: {class_archive.make()}")
    found: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as empty:
        for number in range(rounds):
            for way in ("with", "without") if number % 2 == 0 else ("without", "with"):
                found[way].append(start(empty if way == "without" else None))
                print(f"{way:>7}: a session after {found[way][-1][0]:.1f} s, batches {found[way][-1][1]:.1f} s")
    for at, what in enumerate(("until there is a session", "until the first micro-batches have run")):
        fast, slow = (statistics.median(each[at] for each in found[way]) for way in ("with", "without"))
        print(f"{what}: {fast:.1f} s with the archive, {slow:.1f} s without: {fast / slow:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
