"""Starts the driver's Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.spark.tuning import spark_settings
from headgate_contract.settings import Settings

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


def start_session(name: str, settings: Settings, directory: Path) -> SparkSession:
    """A session of this process alone, with its scratch in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    wanted = spark_settings(settings)
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} -Djava.io.tmpdir={directory} -XX:+UseParallelGC"
    wanted["spark.driver.extraJavaOptions"] = f"{options} {wanted.get('spark.driver.extraJavaOptions', '')}".strip()
    wanted.setdefault("spark.sql.warehouse.dir", (directory / "warehouse").as_uri())
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
