"""What the JVM of a session is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.spark.session import java_options

pytestmark = pytest.mark.spark  # it needs no session, but Spark's package


@pytest.mark.parametrize(
    ("given", "lasting", "collectors"),
    [
        ("", True, ["-XX:+UseParallelGC"]),
        ("", False, ["-XX:+UseSerialGC"]),
        ("-Xlog:gc -XX:+UseG1GC", True, ["-XX:+UseG1GC"]),
        ("-XX:+UseZGC", False, ["-XX:+UseZGC"]),
        ("-XX:-UseParallelGC", False, ["-XX:+UseSerialGC"]),
    ],
)
def test_a_collector_that_the_settings_choose_is_the_only_one(given: str, lasting: bool, collectors: list[str]) -> None:
    options = java_options(given, Path("/here/log4j2.properties"), Path("/here"), lasting=lasting).split()
    assert [option for option in options if option.startswith("-XX:+Use")] == collectors
    assert options[-len(given.split()) :] == given.split() or not given
    assert ("-XX:TieredStopAtLevel=1" in options) is not lasting
