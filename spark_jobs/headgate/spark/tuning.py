"""How Spark is set up for short micro-batches. One place; each line says what it is for."""

from __future__ import annotations

import re

from headgate_contract.errors import BadConfiguration
from headgate_contract.settings import Settings

_CHECKPOINT = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

DEFAULTS = {
    # latency: Spark's own log files cost a forked shell each with the default manager
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # latency: the plan of a micro-batch is known; adapting it costs a job for each shuffle
    "spark.sql.adaptive.enabled": "false",
    # latency: 40 ms a Python step with TCP
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # job files may import their neighbours, and no neighbour or file of the working directory hides a library
    "spark.python.daemon.module": "headgate.spark.daemon",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # few Arrow batches for each task, since a step is one vectorised pass, but none that the JVM's memory cannot hold
    "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # a stage is never recomputed in part: shuffles are unordered, so the batch fails and runs again as a whole
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.task.maxFailures": "1",
    # quiet
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    # a driver's ports are its own business
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
}

_LOCAL_CLUSTER = "local-cluster"
_AUTHENTICATE = "spark.authenticate"
_LOSING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
_MASTER = re.compile(r"local(\[(\*|\d+)])?|local-cluster\[\d+,\d+,\d+]")


def spark_settings(settings: Settings) -> dict[str, str]:
    """What the session is built with: the defaults, what follows from the settings, and then the user's own.

    Raises BadConfiguration, naming the setting, for what would lose records or cannot run.
    """
    _check(settings)
    parallelism = str(settings["parallelism.default"])
    follows = {
        "spark.master": settings["spark.master"],
        "spark.sql.shuffle.partitions": parallelism,
        "spark.default.parallelism": parallelism,
    }
    if settings["spark.master"].startswith(_LOCAL_CLUSTER):
        follows[_AUTHENTICATE] = "true"  # its executors are processes of their own, which connect to each other
    merged = {**DEFAULTS, **follows, **settings.spark}
    return {key: value for key, value in merged.items() if value != ""}


def _check(settings: Settings) -> None:
    if not _MASTER.fullmatch(settings["spark.master"]):
        raise BadConfiguration(
            f"spark.master is {settings['spark.master']!r}: a driver and its workers are on one host",
            hint="it is local[N], with the number of tasks that may run at once, or local-cluster[EXECUTORS,CORES,MB]",
        )
    if settings["spark.master"].startswith(_LOCAL_CLUSTER) and settings.spark.get(_AUTHENTICATE, "true") != "true":
        raise BadConfiguration(
            f"{_AUTHENTICATE} is {settings.spark[_AUTHENTICATE]!r}: whoever is on the host could run code in the "
            "executors of a local cluster",
            hint="leave it out",
        )
    for key in _LOSING:
        if settings.spark.get(key, "false").strip().lower() != "false":
            raise BadConfiguration(
                f"{key} is refused: the records of such a file would be lost silently",
                hint="remove it; keep source files while a snapshot needs them, and mend or move away damaged ones",
            )
