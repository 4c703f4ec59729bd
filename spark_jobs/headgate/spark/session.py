"""Starts the driver's Spark session."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.spark import class_archive
from headgate.spark.tuning import spark_settings
from headgate_contract.errors import StreamFailed
from headgate_contract.settings import Settings

_LONGEST_FOLDER = 60
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-7p jvm %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = error
"""


def start_session(name: str, settings: Settings, directory: Path, *, lasting: bool = True) -> SparkSession:
    """A session of this process alone, with its scratch in `directory`; `lasting` if it is to run for long.

    What the settings say to the JVM comes last, and a collector that they choose is the only one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    wanted = spark_settings(settings)
    wanted.setdefault("spark.python.unix.domain.socket.dir", str(_socket_folder()))
    wanted["spark.driver.extraJavaOptions"] = java_options(
        wanted.get("spark.driver.extraJavaOptions", ""), log4j, directory, lasting=lasting
    )
    wanted.setdefault("spark.sql.warehouse.dir", f"file://{directory}/warehouse")
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def java_options(given: str, log4j: Path, directory: Path, *, lasting: bool) -> str:
    options = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", _quoted(f"-Djava.io.tmpdir={directory}")]
    if not _COLLECTOR.search(given):
        options.append("-XX:+UseParallelGC" if lasting else "-XX:+UseSerialGC")
    if not lasting:
        options.append("-XX:TieredStopAtLevel=1")  # it ends before it would be worth while to compile well
    if "ArchiveFile" not in given and "ArchiveClasses" not in given:
        options += map(_quoted, class_archive.options())
    return " ".join([*options, given]).strip()


def _quoted(option: str) -> str:
    """One option of Java's, whatever is in it, as Spark's launcher splits them."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _socket_folder() -> Path:
    """Where Spark and its Python workers meet; short, since a socket's path may have no more than 107 bytes."""
    folder = Path(tempfile.gettempdir()) / f"headgate-{os.getuid()}"
    if len(str(folder)) > _LONGEST_FOLDER:
        folder = Path("/tmp") / folder.name
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise StreamFailed(
            f"{folder} belongs to somebody else", hint="remove it, or set TMPDIR to a folder of your own"
        )
    return folder
