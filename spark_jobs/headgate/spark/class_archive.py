"""The classes that Spark loads in its first seconds, kept as the JVM maps them: a start takes two thirds of the time.

`python -m headgate.spark.class_archive` makes the archive for this Java and this Spark, unless it is there, as `make
setup` does. Whoever starts a session uses it if it is there. The JVM itself checks that it fits: its own version, the
class path, each jar's time and size. If not, it loads its classes as if there were none.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pyspark

log = logging.getLogger(__name__)

_WITHIN_S = 180.0
_QUIET = "-Xlog:cds=off,cds+dynamic=off"
"""An archive that does not fit is no news: nothing is lost but time. Nor is a class that cannot be in one."""


def archive() -> Path | None:
    """That for this Java and this Spark, if it is there, whole and this user's own.

    Its name has its length: of one that was cut the JVM would die.
    """
    folder, name = _place()
    found = (path for path in sorted(folder.glob(f"{name}-*.jsa")) if _is_whole(path) and _is_ours(path))
    return next(found, None)


def _place() -> tuple[Path, str]:
    """The folder, and how the names of archives for this Java and this Spark begin."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else shutil.which("java")
    real = Path(java or "java").resolve()
    jars = sorted(Path(pyspark.__file__).parent.glob("jars/*.jar"))
    made_for = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in (real, *jars) if path.exists()]
    key = f"{_digest(str(real), pyspark.__file__)}-{_digest(made_for)}"
    base = os.environ.get("HEADGATE_CACHE") or "~/.cache/headgate"
    return Path(base).expanduser() / "classes", f"spark-{pyspark.__version__}-{key}"


def _digest(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]


def options() -> list[str]:
    """What the JVM is to be told so that it uses the archive; nothing if there is none that is this user's own."""
    try:
        path = archive()
    except (OSError, RuntimeError) as error:  # a folder of somebody else's; no home at all
        log.info("whether there is an archive of Spark's classes cannot be seen: %s", error)
        return []
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={path}", _QUIET] if path is not None else []


def _is_whole(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size == int(path.stem.rpartition("-")[2])
    except (OSError, ValueError):
        return False


def _is_ours(path: Path) -> bool:
    """What is in it is run: nobody else may have made it, or be able to change it."""
    try:
        found, folder = path.stat(), path.parent.stat()
    except OSError:
        return False
    return all(
        each.st_uid in (0, os.getuid()) and not each.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for each in (found, folder)
    )


def make() -> Path:
    """Run a session through what a driver's first micro-batches do, and keep what classes that took."""
    there = archive()
    if there is not None:
        return there
    folder, name = _place()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as scratch:
        made = Path(scratch) / "classes.jsa"
        ended = _run(Path(scratch), made)
        if ended != 0 or not made.is_file():
            raise SystemExit(f"the JVM has made no archive of its classes, and ended with {ended}")
        kept = made.rename(folder / f"{name}-{made.stat().st_size}.jsa")
    for older in folder.glob(f"{name.rpartition('-')[0]}-*.jsa"):  # of this Java and this place, with other jars
        if older != kept:
            older.unlink(missing_ok=True)
    return kept


def _run(folder: Path, made: Path) -> int:
    """How the JVM ended, which writes the archive then."""
    from pyspark.core.context import SparkContext

    from headgate.spark.session import start_session
    from headgate.spark.warm_up import first_batches
    from headgate_contract.settings import Settings

    settings = Settings({"spark.driver.extraJavaOptions": f'{_QUIET} "-XX:ArchiveClassesAtExit={made}"'})
    session = start_session("headgate class archive", settings, folder / "work", lasting=False)
    first_batches(session, folder)
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    SparkContext._gateway.shutdown()  # type: ignore[union-attr]
    process.stdin.close()
    ended: int = process.wait(_WITHIN_S)
    return ended


if __name__ == "__main__":
    print(make())
