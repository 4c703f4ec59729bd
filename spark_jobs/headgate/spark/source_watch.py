"""Watches a source's folder, in a thread that may hang with it: Spark takes one that is not there for an empty one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from headgate.spark.readers import Reader

log = logging.getLogger(__name__)

_MISSING_S = 5.0
"""Between two looks at whether the folder is there."""
_WATCH_S = 60.0
"""Between two looks at what is never read."""
_WATCH_SHARE = 50.0
"""And so many times as long as a look takes: a folder of a million files is not looked through all the time."""


class SourceWatch:
    """Watches one source in one life."""

    def __init__(self, reader: Reader, halting: threading.Event, say: Callable[[str], None]) -> None:
        self._reader = reader
        self._halting = halting
        self._say = say
        self.missing: str | None = None
        """That its folder is not there, once it was not. Known at once to whoever asks."""
        threading.Thread(target=self._run, name="source watch", daemon=True).start()

    def _run(self) -> None:
        look_at = 0.0
        while not self._halting.is_set():
            missing = None if self._reader.bounded else self._reader.missing()  # all of that may be read
            if missing is not None:
                self.missing = missing
                return
            began = time.monotonic()
            if began >= look_at:
                self._look()
                took = time.monotonic() - began
                look_at = began + took + max(_WATCH_S, _WATCH_SHARE * took)
            self._halting.wait(_MISSING_S)

    def _look(self) -> None:
        try:
            found = self._reader.unread()
        except OSError as error:
            log.warning("a source folder could not be looked through: %s", error)
        else:
            if found is not None:
                self._say(found)
