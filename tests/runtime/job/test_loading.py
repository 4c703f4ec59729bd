"""Loading a job file: the one Job in it, or its own traceback, shortened to what is the author's."""

from __future__ import annotations

import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.job.loading import JOB_FOLDER, load_job
from headgate_contract import wire
from headgate_contract.errors import JobInvalid

GOOD = """
import headgate
job = headgate.Job("good")
job.source("lines", headgate.sources.files("in")).sink("out", headgate.sinks.discard())
"""


@pytest.fixture(autouse=True)
def untouched_imports() -> Iterator[None]:
    """Job files leave their folder on sys.path and their modules behind: a driver loads one in its life."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    os.environ.pop(JOB_FOLDER, None)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("headgate_job_") or name in ("neighbour", "broken_neighbour"):
            del sys.modules[name]


def write(folder: Path, text: str, name: str = "my_job.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_one_job_of_a_file_is_found(tmp_path: Path) -> None:
    job, module = load_job(write(tmp_path, GOOD))
    assert job.name == "good"
    assert module.job is job


def test_a_job_may_have_two_names_and_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "neighbour.py")
    job, _ = load_job(write(tmp_path, "from neighbour import job\nthe_same = job\n"))
    assert job.name == "good"


def test_a_relative_path_is_seen_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_job(Path("my_job.py"))[0].name == "good"


TWO = GOOD + '\nother = headgate.Job("other")\n'
BAD = {
    "a module that is missing": ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named", 1),
    "an error of the author's": ("def f():\n    return 1 / 0\n\nf()\n", "ZeroDivisionError: division by zero", 2),
    "sys.exit": ("import sys\nsys.exit(3)\n", "SystemExit: 3", 2),
    "an assertion": ("assert False, 'not today'\n", "AssertionError: not today", 1),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_does_not_import_shows_the_authors_own_lines(what: str, tmp_path: Path) -> None:
    text, message, line = BAD[what]
    path = write(tmp_path, text)
    with pytest.raises(JobInvalid) as caught:
        load_job(path)
    first, *frames = caught.value.what.splitlines()
    assert first.startswith(f"the job file {path} does not import: {message}")
    assert frames[-1].startswith(f"  {path}:{line} in ")
    assert all(str(path) in frame for frame in frames)
    assert not [name for name in sys.modules if name.startswith("headgate_job_")], "half a module is not left behind"


def test_the_lines_are_the_authors_also_where_the_working_directory_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "import headgate\nheadgate.Job(5 / 0)\n")
    with pytest.raises(JobInvalid) as caught:
        load_job(Path("my_job.py"))
    assert caught.value.what.splitlines()[1:] == [f"  {path}:2 in <module>: headgate.Job(5 / 0)"]


def test_of_a_folder_beside_the_authors_nothing_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs-of-others").mkdir()
    write(tmp_path / "jobs-of-others", "def fail():\n    raise KeyError('x')\n", "broken_neighbour.py")
    monkeypatch.syspath_prepend(str(tmp_path / "jobs-of-others"))
    path = write(tmp_path / "jobs", "import broken_neighbour\nbroken_neighbour.fail()\n")
    with pytest.raises(JobInvalid) as caught:
        load_job(path)
    assert caught.value.what.splitlines()[1:] == [f"  {path}:2 in <module>: broken_neighbour.fail()"]


@pytest.mark.parametrize("name", ["my_job.py", "neighbour.py"])
def test_a_syntax_error_is_shown_as_python_shows_it(name: str, tmp_path: Path) -> None:
    broken = write(tmp_path, "job = (\n", name)
    path = broken if name == "my_job.py" else write(tmp_path, "import neighbour\n")
    with pytest.raises(JobInvalid) as caught:
        load_job(path)
    assert f'File "{broken}", line 1' in caught.value.what
    assert "SyntaxError: '(' was never closed" in caught.value.what


def test_what_headgate_refuses_in_a_job_file_names_the_authors_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import headgate\n\njob = headgate.Job('j')\njob.source('lines', 5)\n"
    path = write(tmp_path, text)
    with pytest.raises(
        JobInvalid, match=f"^{path}, line 4: source 'lines' of job 'j' is not one of headgate.sources: 5"
    ):
        load_job(path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobInvalid, match=r"^my_job\.py, line 4: source 'lines'"):
        load_job(Path("my_job.py"))


def test_the_hint_of_what_headgate_refuses_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, "import headgate\nheadgate.sources.files('in', format='xml')\n")
    with pytest.raises(JobInvalid) as caught:
        load_job(path)
    assert caught.value.hint == "known are text, json, csv, parquet"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no headgate.Job"),
        ("import headgate\ndef make():\n    return headgate.Job('j')\n", "no headgate.Job"),
        (TWO, r"2 jobs \(good, other\)"),
    ],
    ids=["an empty file", "a job within a function", "two jobs"],
)
def test_a_file_holds_exactly_one_job(text: str, found: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(JobInvalid, match=f"{path} holds {found} at its top level; write exactly one: "):
        load_job(path)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobInvalid, match=f"there is no job file {tmp_path}/missing.py"):
        load_job(tmp_path / "missing.py")
    with pytest.raises(JobInvalid, match=f"there is no job file {tmp_path}"):
        load_job(tmp_path)
    with pytest.raises(JobInvalid, match=r"job\.txt is not a Python file"):
        load_job(write(tmp_path, GOOD, "job.txt"))


def test_only_the_bytes_that_were_deployed_run(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    deployed = wire.sha256(path.read_bytes())
    assert load_job(path, deployed)[0].name == "good"
    write(tmp_path, "raise SystemExit('it ran')")
    with pytest.raises(JobInvalid, match=f"the job file {path} has changed since it was deployed; deploy it again: "):
        load_job(path, deployed)


def test_compiled_bytes_of_an_earlier_file_are_neither_taken_nor_left(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("good", "evil"))
    py_compile.compile(str(path))
    compiled = list((tmp_path / "__pycache__").iterdir())
    seen = path.stat()
    write(tmp_path, GOOD)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert load_job(path)[0].name == "good"
    for file in compiled:
        file.unlink()
    load_job(path)
    assert not list((tmp_path / "__pycache__").iterdir())


def test_a_neighbour_hides_no_module_of_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "raise SystemExit('not the one that was meant')", "sched.py")
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    load_job(write(tmp_path, "import sched\nsched.scheduler\n" + GOOD))
    assert os.environ[JOB_FOLDER] == str(tmp_path)
