"""Starts the driver's Spark session."""

from __future__ import annotations

import codecs
import locale
import os
import re
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headgate.spark import class_archive
from headgate.spark.socket_folder import make_socket_folder, remove_socket_folder
from headgate.spark.tuning import spark_settings
from headgate_contract.modes import new_file
from headgate_contract.settings import Settings

_SOCKETS = "spark.python.unix.domain.socket.dir"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
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
    if codecs.lookup(locale.getencoding()).name != "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"  # else Java passes over every file whose name is not ASCII, in silence
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # also where a local cluster's master and executors listen
    wanted = spark_settings(settings)
    if _SOCKETS not in wanted:
        wanted[_SOCKETS] = str(make_socket_folder())
    wanted["spark.driver.extraJavaOptions"] = java_options(
        wanted.get("spark.driver.extraJavaOptions", ""), log4j, directory, lasting=lasting
    )
    wanted.setdefault("spark.sql.warehouse.dir", f"file://{directory}/warehouse")
    if wanted.get("spark.authenticate") == "true":
        wanted.setdefault("spark.authenticate.secret", secrets.token_hex(32))
    wanted["spark.app.name"] = name
    _start_jvm(wanted, directory)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def stop_session(session: SparkSession) -> None:
    """Stop it, and remove what it met its workers in."""
    folder = sockets_of(session)
    session.stop()
    if folder is not None:
        remove_socket_folder(folder)


def sockets_of(session: SparkSession) -> Path | None:
    """The folder in which it meets its Python workers."""
    folder = session.conf.get(_SOCKETS, None)
    return Path(folder) if folder is not None else None


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


def _as_properties(settings: Mapping[str, str]) -> str:
    """As a file of Java's properties, whatever is in keys and values."""
    return "".join(f"{_as_property(key)}={_as_property(value)}\n" for key, value in settings.items())


def _as_property(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    plain = {code for code in range(0x21, 0x7F) if chr(code) not in "\\=:#!"}
    return "".join(chr(code) if code in plain else f"\\u{code:04x}" for code in codes)


def _start_jvm(settings: Mapping[str, str], directory: Path) -> None:
    """Start the JVM with `settings` in a file: everybody on the host can read the command line of a process."""
    file = directory / "spark.conf"
    file.unlink(missing_ok=True)
    with os.fdopen(new_file(file, 0o600), "w") as written:
        written.write(_as_properties(settings))
    given = os.environ.get(_SUBMIT)
    arguments = given or "pyspark-shell"
    os.environ[_SUBMIT] = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults {arguments}"
    try:
        SparkContext.setSystemProperty("spark.app.name", settings["spark.app.name"])
    finally:
        if given is None:
            del os.environ[_SUBMIT]
        else:
            os.environ[_SUBMIT] = given
