"""The folder in which a driver works on its host, and whether somebody has taken something of it away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from headgate.driver.under_way import DriverSpent

_BLOCKS = "engine/local/blockmgr-*"
"""Where Spark keeps its blocks: it makes these folders once, and never again."""


class WorkFolder:
    """Remembers the folders that this process cannot do without: if one is gone, or is another one, it is spent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[Path, tuple[int, int]] = {}
        self._gone: Path | None = None

    def check(self, also: Iterable[Path] = ()) -> None:
        """Raise DriverSpent if something is gone, now and at the last look: Spark's JVM takes its own away as it ends.

        To be called again and again: folders that have come are known from then on. `also` is what is needed elsewhere.
        """
        before, self._gone = self._gone, self._missing(also)
        if self._gone is not None and before == self._gone:
            raise self._spent(self._gone)

    def check_at_once(self, also: Iterable[Path] = ()) -> None:
        """The same, of a process whose JVM is known to live."""
        gone = self._missing(also)
        if gone is not None:
            raise self._spent(gone)

    def _missing(self, also: Iterable[Path]) -> Path | None:
        gone = next((path for path, identity in self._known.items() if _identity(path) != identity), None)
        if gone is None:
            for path in (*self._needed(), *also):
                identity = _identity(path)
                if identity is not None:
                    self._known.setdefault(path, identity)
        return gone

    def _needed(self) -> Iterator[Path]:
        yield self._path
        yield self._path / "engine"
        yield self._path / "engine" / "local"
        yield from self._path.glob(_BLOCKS)
        yield from (path for path in self._path.glob(f"{_BLOCKS}/*") if path.is_dir())  # files come and go

    def _spent(self, gone: Path) -> DriverSpent:
        return DriverSpent(
            f"the working folder {gone} was deleted while the driver ran",
            hint="set headgate.work-dir, or TMPDIR for what lies there, to a folder that nothing cleans up",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
