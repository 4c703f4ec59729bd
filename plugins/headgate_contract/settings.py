"""Settings of a stream: Flink's keys, current and deprecated names, checked once, where they are made."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_contract.cron import check_cron
from headgate_contract.durations import Duration, parse_duration, parse_size
from headgate_contract.errors import BadConfiguration, BadInput, UnknownKey
from headgate_contract.paths import directory_url
from headgate_contract.snapshot import ExternalizedCheckpointRetention


@dataclass(frozen=True, slots=True)
class Option:
    """One setting."""

    key: str
    parse: Callable[[object, str], Any]
    default: Any
    about: str
    deprecated: tuple[str, ...] = ()


def _integer(low: int, high: int = 2**31 - 1) -> Callable[[object, str], int]:
    def parse(text: object, what: str) -> int:
        try:
            number = int(str(text).strip())
        except ValueError:
            raise BadConfiguration(f"{what}: {text!r} is not a whole number") from None
        if not low <= number <= high:
            raise BadConfiguration(f"{what}: {number} is not allowed", hint=f"it is between {low} and {high}")
        return number

    return parse


def _number(low: float, high: float) -> Callable[[object, str], float]:
    def parse(text: object, what: str) -> float:
        try:
            number = float(str(text).strip())
        except ValueError:
            raise BadConfiguration(f"{what}: {text!r} is not a number") from None
        if not low <= number <= high:
            raise BadConfiguration(f"{what}: {number} is not allowed", hint=f"it is between {low} and {high}")
        return number

    return parse


def _boolean(text: object, what: str) -> bool:
    lowered = str(text).strip().lower()
    if lowered not in ("true", "false"):
        raise BadConfiguration(f"{what}: {text!r} is neither true nor false")
    return lowered == "true"


def _choice(*allowed: str) -> Callable[[object, str], str]:
    def parse(text: object, what: str) -> str:
        if str(text) in allowed:
            return str(text)
        folded = str(text).strip().lower().replace("_", "-")
        for candidate in allowed:
            if candidate.lower().replace("_", "-") == folded:
                return candidate
        near = difflib.get_close_matches(str(text), allowed, 1)
        nearest = f"did you mean {near[0]!r}? " if near else ""
        raise BadConfiguration(f"{what}: {text!r} is not allowed", hint=f"{nearest}allowed are {', '.join(allowed)}")

    return parse


def _text(text: object, what: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise BadConfiguration(f"{what}: {text!r} is not a text")
    return text.strip()


def _directory(text: object, what: str) -> str:
    try:
        return directory_url(_text(text, what))
    except BadInput as error:
        raise BadConfiguration(f"{what}: {error.what}", hint=error.hint) from None


def _cron(text: object, what: str) -> str:
    return check_cron(_text(text, what), what)


def _positive_duration(text: object, what: str) -> Duration:
    duration = parse_duration(text, what)
    if duration == 0:
        raise BadConfiguration(f"{what}: a duration of 0 is not allowed")
    return duration


OPTIONS = (
    Option(
        "execution.checkpointing.interval",
        _positive_duration,
        None,
        "How often a checkpoint is taken; checkpointing is off until this is set.",
        ("state.checkpoints.interval",),
    ),
    Option(
        "execution.checkpointing.timeout",
        _positive_duration,
        Duration(600_000),
        "After this long a checkpoint that is not complete is discarded.",
    ),
    Option(
        "execution.checkpointing.sync-phase-timeout",
        parse_duration,
        Duration(0),
        "The stream fails if for this long no micro-batch may begin because a checkpoint's barrier passes; 0 is never.",
    ),
    Option(
        "execution.checkpointing.min-pause",
        parse_duration,
        Duration(0),
        "The least time between the end of one checkpoint and the start of the next periodic one.",
    ),
    Option(
        "execution.checkpointing.max-concurrent-checkpoints",
        _integer(1, 100),
        1,
        "How many checkpoints may be under way at once.",
    ),
    Option(
        "execution.checkpointing.num-retained",
        _integer(1, 10_000),
        1,
        "How many completed checkpoints are kept.",
        ("state.checkpoints.num-retained",),
    ),
    Option(
        "execution.checkpointing.externalized-checkpoint-retention",
        _choice(*(each.value for each in ExternalizedCheckpointRetention)),
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION.value,
        "Whether a cancel deletes the stream's checkpoints: by RETAIN_ON_CANCELLATION it does not.",
    ),
    Option(
        "execution.checkpointing.savepoint-dir",
        _directory,
        None,
        "Where savepoints are written, if not below the storage root: a URL, opened with the root's options.",
        ("state.savepoints.dir",),
    ),
    Option(
        "execution.checkpointing.tolerable-failed-checkpoints",
        _integer(0),
        0,
        "How many checkpoints in a row may fail before the stream does.",
    ),
    Option(
        "execution.checkpointing.mode",
        _choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
        "EXACTLY_ONCE",
        "What a barrier promises for the state.",
    ),
    Option(
        "execution.checkpointing.unaligned.enabled",
        _boolean,
        False,
        "Whether barriers overtake what waits in channels, which then belongs to the checkpoint; savepoints never do.",
        ("execution.checkpointing.unaligned",),
    ),
    Option(
        "execution.checkpointing.aligned-checkpoint-timeout",
        parse_duration,
        Duration(0),
        "With unaligned checkpoints: for how long a barrier waits before it begins to overtake; 0 is not at all.",
        ("execution.checkpointing.alignment-timeout",),
    ),
    Option(
        "execution.checkpointing.recover-without-channel-state.checkpoint-id",
        _integer(-1),
        -1,
        "The checkpoint whose records in flight are left behind, and lost, in a restore from it; -1: none.",
    ),
    Option(
        "state.backend.type", _choice("hashmap", "rocksdb"), "hashmap", "Where working state lives.", ("state.backend",)
    ),
    Option("parallelism.default", _integer(1, 4096), 2, "How many subtasks a stateful vertex has."),
    Option(
        "pipeline.max-parallelism", _integer(1, 32_768), 128, "The number of key groups: fixed for the stream's life."
    ),
    Option(
        "restart-strategy.type",
        _choice("none", "fixed-delay", "exponential-delay", "failure-rate"),
        "exponential-delay",
        "What follows a failure.",
        ("restart-strategy",),
    ),
    Option("restart-strategy.fixed-delay.attempts", _integer(1), 1, "fixed-delay: how often."),
    Option("restart-strategy.fixed-delay.delay", parse_duration, Duration(1000), "fixed-delay: the pause."),
    Option(
        "restart-strategy.exponential-delay.initial-backoff",
        _positive_duration,
        Duration(1000),
        "exponential-delay: the first pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.max-backoff",
        _positive_duration,
        Duration(60_000),
        "exponential-delay: the longest pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        _number(1.0, 100.0),
        1.5,
        "exponential-delay: the growth of the pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        _positive_duration,
        Duration(3_600_000),
        "exponential-delay: after running this long the pause is the first one again.",
    ),
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        _number(0.0, 1.0),
        0.1,
        "exponential-delay: the share of chance in the pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        _integer(1),
        2**31 - 1,
        "exponential-delay: how often before the stream is given up.",
    ),
    Option("restart-strategy.failure-rate.max-failures-per-interval", _integer(1), 1, "failure-rate: how many."),
    Option(
        "restart-strategy.failure-rate.failure-rate-interval",
        _positive_duration,
        Duration(60_000),
        "failure-rate: in how long.",
    ),
    Option("restart-strategy.failure-rate.delay", parse_duration, Duration(1000), "failure-rate: the pause."),
    Option("heartbeat.interval", _positive_duration, Duration(2000), "How often a driver gives a sign of life."),
    Option(
        "heartbeat.timeout",
        _positive_duration,
        Duration(20_000),
        "A driver without a sign of life for this long is lost.",
    ),
    Option(
        "headgate.startup-timeout", _positive_duration, Duration(180_000), "How long a driver may take until it runs."
    ),
    Option(
        "headgate.trigger-interval",
        parse_duration,
        Duration(0),
        "The pace of micro-batches; 0 is as fast as they come.",
    ),
    Option("headgate.fall-back", _boolean, False, "Take an older snapshot, loudly, when the newest one is damaged."),
    Option("headgate.savepoint.cron", _cron, None, "When the savepoint DAG of the stream runs."),
    Option("headgate.log.max-size", parse_size, 16 << 20, "The driver's log is rotated at this size."),
    Option("headgate.log.backups", _integer(1, 1000), 4, "How many rotated logs are kept."),
    Option("headgate.work-dir", _text, None, "Where a driver keeps working state and logs on its host."),
    Option("spark.master", _text, "local[2]", "The Spark master that the driver connects to."),
)
"""Every option. Keys that begin with `spark.` are passed to Spark as they are."""

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
            self._values[current] = _parse(current, value, key)
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
