"""Logs: their end, over rotated files, and why a driver ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_contract.errors import NotFound
from headgate_contract.ids import Generation
from headgate_control.logs import follow, root_cause, rotated, tail
from tests.control.world import STREAM, World


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Twelve files: the one that is written, and eleven rotated ones."""
    path = tmp_path / "driver.log"
    for backup in range(1, 12):
        (tmp_path / f"driver.log.{backup}").write_text(f"old {backup} a\nold {backup} b\n")
    path.write_text("new a\nnew b\n")
    (tmp_path / "driver.log.gz").write_text("not a part of it")
    return path


def test_rotated_files_are_read_oldest_first_by_number(log: Path) -> None:
    assert [path.name for path in rotated(log)] == [*(f"driver.log.{n}" for n in range(11, 0, -1)), "driver.log"]


def test_the_tail_reaches_back_over_rotated_files(log: Path) -> None:
    assert tail(log, 1) == ["new b"]
    assert tail(log, 3) == ["old 1 b", "new a", "new b"]
    assert len(tail(log, 1000)) == 24


def test_the_tail_of_a_long_file_reads_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    path.write_text("".join(f"{number} {'x' * 997}\n" for number in range(500)))
    assert [line.split()[0] for line in tail(path, 200)] == [str(number) for number in range(300, 500)]


def test_following_yields_what_is_added_and_survives_rotation(log: Path) -> None:
    added = follow(log)
    assert next(added) == []
    with log.open("a") as file:
        file.write("first\nsec")
    assert next(added) == ["first"]
    with log.open("a") as file:
        file.write("ond\n")
    assert next(added) == ["second"]
    log.rename(log.with_name("driver.log.12"))
    assert next(added) == []
    log.write_text("anew\n")
    assert next(added) == ["anew"]


TRACEBACK = """\
starting
Traceback (most recent call last):
  File "/work/plugins/headgate_control/x.py", line 1, in main
    run()
  File "/srv/jobs/orders.py", line 12, in <module>
    import nosuchmodule
ModuleNotFoundError: No module named 'nosuchmodule'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/spark_jobs/headgate/job/loading.py", line 40, in load_job
    raise
JobInvalid: the job file does not import
closing
"""


def test_the_cause_is_the_last_error_with_the_jobs_own_frame() -> None:
    cause = root_cause(TRACEBACK.splitlines(), "/srv/jobs/orders.py", "/srv")
    assert cause == "JobInvalid: the job file does not import (/srv/jobs/orders.py, line 12, in <module>)"


def test_without_a_frame_in_the_job_file_a_neighbour_of_it_is_named() -> None:
    cause = root_cause(TRACEBACK.splitlines(), "/srv/other.py", "/srv")
    assert cause.endswith("(/srv/jobs/orders.py, line 12, in <module>)")


def test_without_a_traceback_the_last_line_that_looks_like_an_error_is_the_cause() -> None:
    lines = ["INFO up", "26/01/01 ERROR SparkContext: no port is free", "INFO shutdown hook", "INFO bye"]
    assert "no port is free" in root_cause(lines, "/j.py", "/srv")


def test_without_any_error_the_last_words_are_the_cause() -> None:
    assert root_cause(["a", "", "b", "c", "d"], "/j.py", "/srv") == "b | c | d"
    assert root_cause([], "/j.py", "/srv") == "it wrote nothing to its log"


def test_a_log_on_another_host_is_named_with_host_and_path(world: World) -> None:
    world.deployed()
    start = world.started(host="far-away")
    with pytest.raises(NotFound, match=f"{start.log} on far-away"):
        world.control().logs(STREAM)


def test_the_log_of_any_generation_on_this_host(world: World) -> None:
    world.deployed()
    for _ in range(2):
        path = Path(world.started().log)
        path.parent.mkdir()
        path.write_text(f"I am {path.parent.name}\n")
    assert world.control().logs(STREAM).lines == ("I am g2",)
    assert world.control().logs(STREAM, Generation(1)).lines == ("I am g1",)
    with pytest.raises(NotFound, match="no generation 3"):
        world.control().logs(STREAM, Generation(3))
