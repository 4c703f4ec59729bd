"""Settings of a stream: Flink's keys, current and deprecated names, checked once, where they are made."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from headgate_contract.credentials import carries_credentials, masked
from headgate_contract.errors import BadConfiguration, UnknownKey
from headgate_contract.options import OPTIONS

_ELSEWHERE = dict.fromkeys(
    (
        "execution.checkpointing.dir",
        "state.checkpoints.dir",
    ),
    "snapshots are kept below the storage root (--root)",
)
"""Flink's keys for what is no setting of a stream here, and where it is said instead."""

_BY_KEY = {option.key: option for option in OPTIONS}
_CURRENT = {old: option.key for option in OPTIONS for old in option.deprecated}


class Settings(Mapping[str, Any]):
    """Checked settings: `settings["execution.checkpointing.interval"]` is a Duration, or the default."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        written: dict[str, str] = {}
        for key, value in ((str(key), value) for key, value in given.items()):
            current = _CURRENT.get(key, key)
            if current in written:
                raise BadConfiguration(f"{written[current]} and {key} are the same setting", hint=f"keep {current}")
            written[current] = key
            self._values[current] = check_setting(key, value)
            self._given[current] = _plain(value)
        self._check_together()

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        if key in _BY_KEY:
            return _BY_KEY[key].default
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter({**{option.key: None for option in OPTIONS}, **self._values})

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def given(self) -> dict[str, str]:
        """What was set, under current names, as text: this is what is stored."""
        return dict(sorted(self._given.items()))

    @property
    def spark(self) -> dict[str, str]:
        """The settings that Spark gets as they are."""
        return {key: value for key, value in self._given.items() if key.startswith("spark.") and key not in _BY_KEY}

    def _check_together(self) -> None:
        if self["heartbeat.timeout"] <= self["heartbeat.interval"]:
            raise BadConfiguration(
                f"heartbeat.timeout ({self['heartbeat.timeout']}) is not above heartbeat.interval "
                f"({self['heartbeat.interval']})",
                hint="three intervals or more are sensible",
            )
        if self["parallelism.default"] > self["pipeline.max-parallelism"]:
            raise BadConfiguration(
                f"parallelism.default ({self['parallelism.default']}) is above pipeline.max-parallelism "
                f"({self['pipeline.max-parallelism']})",
                hint="a subtask needs a key group at least",
            )
        self._check_unaligned()
        first, longest = (self[f"restart-strategy.exponential-delay.{name}-backoff"] for name in ("initial", "max"))
        if first > longest:
            raise BadConfiguration(
                f"restart-strategy.exponential-delay.initial-backoff ({first}) is above max-backoff ({longest})"
            )

    def _check_unaligned(self) -> None:
        if not self["execution.checkpointing.unaligned.enabled"]:
            return
        if self["execution.checkpointing.mode"] != "EXACTLY_ONCE":
            raise BadConfiguration(
                "execution.checkpointing.unaligned.enabled needs execution.checkpointing.mode EXACTLY_ONCE",
                hint="at least once no barrier waits for others: there is nothing to overtake",
            )
        if self["execution.checkpointing.max-concurrent-checkpoints"] > 1:
            raise BadConfiguration(
                "execution.checkpointing.unaligned.enabled allows one checkpoint at a time, "
                f"max-concurrent-checkpoints is {self['execution.checkpointing.max-concurrent-checkpoints']}"
            )


def check_setting(key: str, value: object) -> Any:
    """The value of one setting, whatever else is set. Raises BadConfiguration or UnknownKey."""
    if carries_credentials(str(value)):
        raise BadConfiguration(
            f"{key}: {masked(str(value))!r} carries credentials, and settings are kept and shown in clear",
            hint="give them in the environment, or as options of the root or of the sink",
        )
    return _parse(_CURRENT.get(key, key), value, key)


def _plain(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _parse(key: str, value: object, written: str) -> Any:
    """The value of the setting `key`, which a person has `written` perhaps under an older name."""
    option = _BY_KEY.get(key)
    if option is not None:
        return option.parse(value, written)
    if key.startswith("spark."):
        if value is None or not isinstance(value, (str, bool, int, float)):
            raise BadConfiguration(f"{written}: {value!r} is neither a text nor a number")
        return _plain(value)
    if key in _ELSEWHERE:
        raise UnknownKey(f"unknown setting {key!r}", hint=_ELSEWHERE[key])
    known = [*_BY_KEY, *_CURRENT]
    ends = [each for each in known if each.startswith("execution.checkpointing.") and each.endswith(f".{key}")]
    near = ends[:1] or difflib.get_close_matches(key, known, 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "docs/operations.md lists the settings"
    raise UnknownKey(f"unknown setting {key!r}", hint=hint)
