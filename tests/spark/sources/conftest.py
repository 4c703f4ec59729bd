"""One Spark session for the tests of the sources, set up as the driver's is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.spark.session import start_session
from headgate_contract.settings import Settings
from tests.house_rules import REPO
from tests.runtime.source.shelf import Shelf
from tests.spark.sources.queries import Lives


@pytest.fixture(scope="package")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_DIRS")}
    os.environ["PYTHONPATH"] = os.pathsep.join(str(REPO / package) for package in ("plugins", "spark_jobs"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = Settings({"parallelism.default": 2})
    started = start_session("sources", settings, tmp_path_factory.mktemp("spark"), lasting=False)
    yield started
    started.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def lives(session: SparkSession, tmp_path: Path) -> Lives:
    return Lives(session, tmp_path, Shelf())
