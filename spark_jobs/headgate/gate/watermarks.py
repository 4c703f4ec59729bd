"""The watermark of a task with several inputs: the least of those that are not idle. A value; never goes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headgate.gate.elements import ChannelId, Watermark


@dataclass(frozen=True)
class Watermarks:
    """How far each input has come."""

    levels: Mapping[ChannelId, int | None]
    """None: it has told of none yet."""
    idle: frozenset[ChannelId] = field(default_factory=frozenset)
    passed: int | None = None
    """What the task was told last."""
    told_idle: bool = False

    @classmethod
    def of(cls, channels: Iterable[ChannelId]) -> Watermarks:
        return cls(dict.fromkeys(channels))

    def after(self, channel: ChannelId, watermark: Watermark) -> Watermarks:
        """What is known when `channel` has brought `watermark`; a lower one than its last changes nothing."""
        if watermark.ms is None:
            return self._looked(replace(self, idle=self.idle | {channel}))
        level = self.levels[channel]
        levels = {**self.levels, channel: watermark.ms if level is None else max(level, watermark.ms)}
        return self._looked(replace(self, levels=levels, idle=self.idle - {channel}))

    def without(self, channel: ChannelId) -> Watermarks:
        """What is known when `channel` has ended: it holds up nobody."""
        levels = {other: level for other, level in self.levels.items() if other != channel}
        return self._looked(replace(self, levels=levels, idle=self.idle - {channel}))

    def news_since(self, before: Watermarks) -> tuple[Watermark, ...]:
        """What the task, and those behind it, are to be told: how far event time has come, that nobody is left."""
        comes_back = before.told_idle and not self.told_idle and self.passed is not None
        told = [Watermark(self.passed)] if self.passed != before.passed or comes_back else []
        return (*told, Watermark(None)) if self.told_idle and not before.told_idle else tuple(told)

    @staticmethod
    def _looked(known: Watermarks) -> Watermarks:
        active = [level for channel, level in known.levels.items() if channel not in known.idle]
        told_idle = bool(known.levels) and not active
        # With nobody left to wait for, whatever anybody of them has said holds; who has ended is not asked any more. An
        # input that comes back from idleness behind what was passed meanwhile holds up nobody until it has caught up.
        if not active:
            levels = [level for level in known.levels.values() if level is not None]
            least = max(levels, default=None)
        else:
            abreast = [each for each in active if each is not None and (known.passed is None or each >= known.passed)]
            least = None if None in active else min(abreast, default=None)
        passed = known.passed if least is None or (known.passed is not None and least <= known.passed) else least
        return replace(known, passed=passed, told_idle=told_idle)
