"""Which sources are silent, and for so long that they hold up nobody's event time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate_contract.ids import VertexUid


class Silence:
    """Of each source that may become idle, since when nothing has come of it, on the clock of the turns."""

    def __init__(self, idle_after_ms: Mapping[VertexUid, int]) -> None:
        self._idle_after_ms = idle_after_ms
        self._since_ms: dict[VertexUid, int] = {}
        """Of those that are silent."""
        self._idle: set[VertexUid] = set()
        """Of those, the ones of which it was told."""
        self.counts = False
        """Not before the sources run."""

    def look(self, source: VertexUid, now_ms: int, *, silent: bool) -> bool:
        """Note whether it is silent now; True, once in each silence, if that has made it idle."""
        if not silent or not self.counts:
            self._since_ms.pop(source, None)
            self._idle.discard(source)
            return False
        self._since_ms.setdefault(source, now_ms)
        becomes_idle = source not in self._idle and now_ms >= self._until_ms(source)
        if becomes_idle:
            self._idle.add(source)
        return becomes_idle

    def next_deadline(self) -> int | None:
        """When the next of them becomes idle, if nothing comes of it."""
        return min((self._until_ms(source) for source in self._since_ms if source not in self._idle), default=None)

    def __iter__(self) -> Iterator[VertexUid]:
        return iter(self._idle_after_ms)

    def _until_ms(self, source: VertexUid) -> int:
        return self._since_ms[source] + self._idle_after_ms[source]
