"""Every setting of a stream: its key, its deprecated ones, how its value is read, its default, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate_contract.durations import Duration, parse_duration, parse_size
from headgate_contract.setting_values import (
    boolean,
    cron_text,
    directories,
    directory,
    integer_between,
    number_between,
    one_of,
    plain_text,
    positive_duration,
)
from headgate_contract.snapshot import ExternalizedCheckpointRetention


@dataclass(frozen=True, slots=True)
class Option:
    """One setting."""

    key: str
    parse: Callable[[object, str], Any]
    default: Any
    about: str
    deprecated: tuple[str, ...] = ()


OPTIONS = (
    Option(
        "execution.checkpointing.interval",
        positive_duration,
        None,
        "How often a checkpoint is taken, unless it would only repeat the newest; "
        "checkpointing is off until this is set.",
        ("state.checkpoints.interval",),
    ),
    Option(
        "execution.checkpointing.timeout",
        positive_duration,
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
        integer_between(1, 100),
        1,
        "How many checkpoints may be under way at once.",
    ),
    Option(
        "execution.checkpointing.num-retained",
        integer_between(1, 10_000),
        1,
        "How many completed checkpoints are kept.",
        ("state.checkpoints.num-retained",),
    ),
    Option(
        "execution.checkpointing.externalized-checkpoint-retention",
        one_of(*(each.value for each in ExternalizedCheckpointRetention)),
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION.value,
        "Whether a cancel deletes the stream's checkpoints: by RETAIN_ON_CANCELLATION it does not.",
    ),
    Option(
        "execution.checkpointing.savepoint-dir",
        directory,
        None,
        "Where savepoints are written, if not below the storage root: a URL, opened with the root's options.",
        ("state.savepoints.dir",),
    ),
    Option(
        "execution.checkpointing.tolerable-failed-checkpoints",
        integer_between(0),
        0,
        "How many checkpoints in a row may fail before the stream does.",
    ),
    Option(
        "execution.checkpointing.mode",
        one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"),
        "EXACTLY_ONCE",
        "What a barrier promises for the state.",
    ),
    Option(
        "execution.checkpointing.unaligned.enabled",
        boolean,
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
        integer_between(-1),
        -1,
        "The checkpoint whose records in flight are left behind, and lost, in a restore from it; -1: none.",
    ),
    Option(
        "state.backend.type", one_of("hashmap", "rocksdb"), "hashmap", "Where working state lives.", ("state.backend",)
    ),
    Option("parallelism.default", integer_between(1, 4096), 2, "How many subtasks a stateful vertex has."),
    Option(
        "pipeline.max-parallelism",
        integer_between(1, 32_768),
        128,
        "The number of key groups: fixed for the stream's life.",
    ),
    Option(
        "restart-strategy.type",
        one_of("none", "fixed-delay", "exponential-delay", "failure-rate"),
        "exponential-delay",
        "What follows a failure.",
        ("restart-strategy",),
    ),
    Option(
        "restart-strategy.max-failures-per-position",
        integer_between(1),
        3,
        "How often in a row the same records may fail the stream, in the same way, before it is given up.",
    ),
    Option("restart-strategy.fixed-delay.attempts", integer_between(1), 1, "fixed-delay: how often."),
    Option("restart-strategy.fixed-delay.delay", parse_duration, Duration(1000), "fixed-delay: the pause."),
    Option(
        "restart-strategy.exponential-delay.initial-backoff",
        positive_duration,
        Duration(1000),
        "exponential-delay: the first pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.max-backoff",
        positive_duration,
        Duration(60_000),
        "exponential-delay: the longest pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        number_between(1.0, 100.0),
        1.5,
        "exponential-delay: the growth of the pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        positive_duration,
        Duration(3_600_000),
        "exponential-delay: after running this long the pause is the first one again.",
    ),
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        number_between(0.0, 1.0),
        0.1,
        "exponential-delay: the share of chance in the pause.",
    ),
    Option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        integer_between(1),
        2**31 - 1,
        "exponential-delay: how often before the stream is given up.",
    ),
    Option("restart-strategy.failure-rate.max-failures-per-interval", integer_between(1), 1, "failure-rate: how many."),
    Option(
        "restart-strategy.failure-rate.failure-rate-interval",
        positive_duration,
        Duration(60_000),
        "failure-rate: in how long.",
    ),
    Option("restart-strategy.failure-rate.delay", parse_duration, Duration(1000), "failure-rate: the pause."),
    Option("heartbeat.interval", positive_duration, Duration(2000), "How often a driver gives a sign of life."),
    Option(
        "heartbeat.timeout",
        positive_duration,
        Duration(20_000),
        "A driver without a sign of life for this long is lost.",
    ),
    Option(
        "headgate.startup-timeout", positive_duration, Duration(180_000), "How long a driver may take until it runs."
    ),
    Option(
        "headgate.progress.timeout",
        parse_duration,
        Duration(60_000),
        "The driver is replaced if for this long its JVM or its coordinator gives no sign of life, or a process of its "
        "is stopped; 0 is never.",
    ),
    Option(
        "headgate.progress.source-timeout",
        parse_duration,
        Duration(600_000),
        "The stream fails if for this long a source only looks for new records, or Spark only starts; 0 is never.",
    ),
    Option(
        "headgate.progress.batch-timeout",
        parse_duration,
        Duration(3_600_000),
        "The stream fails if one micro-batch, one restore or one action on the log or a sink takes this long; 0 is "
        "never.",
    ),
    Option(
        "headgate.trigger-interval",
        parse_duration,
        Duration(0),
        "The pace of micro-batches; 0 is as fast as they come.",
    ),
    Option("headgate.fall-back", boolean, False, "Take an older snapshot, loudly, when the newest one is damaged."),
    Option(
        "headgate.snapshot.allowed-dirs",
        directories,
        None,
        "Where savepoints may be written and snapshots restored from, beside the root and savepoint-dir; `;` between.",
    ),
    Option("headgate.savepoint.cron", cron_text, None, "When the savepoint DAG of the stream runs."),
    Option("headgate.log.max-size", parse_size, 16 << 20, "The driver's log is rotated at this size."),
    Option("headgate.log.backups", integer_between(1, 1000), 4, "How many rotated logs are kept."),
    Option("headgate.work-dir", plain_text, None, "Where a driver keeps working state and logs on its host."),
    Option("spark.master", plain_text, "local[2]", "The Spark master that the driver connects to."),
)
"""Every option. Keys that begin with `spark.` are passed to Spark as they are."""
