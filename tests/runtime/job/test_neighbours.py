"""A module beside the job file that is imported and not found, since another comes first, is refused by its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.job.check import check
from headgate.job.neighbours import check_neighbours
from headgate_contract.errors import JobInvalid

JOB = """
import headgate
job = headgate.Job("copy")
job.source("lines", headgate.sources.files("in")).sink("out", headgate.sinks.discard())
"""


@pytest.fixture(autouse=True)
def untouched_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("headgate_job_") or name in ("my_helper", "my_package"):
            del sys.modules[name]


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder / "job.py"


@pytest.mark.parametrize(
    "imports",
    ["import socket", "import os, socket as plug", "from socket import it", "def later():\n    import socket\n"],
)
def test_a_neighbour_that_shadows_the_standard_library_is_refused_with_both_names(tmp_path: Path, imports: str) -> None:
    job = files(tmp_path, job=f"{imports}\n{JOB}", socket="it = 1\n")
    verdict = check(job)
    assert not verdict["ok"]
    assert f"imports 'socket' and gets Python's own, not {tmp_path}/socket.py beside it; rename" in verdict["error"]


def test_it_is_found_behind_a_neighbour_and_as_a_package_and_of_a_library_too(tmp_path: Path) -> None:
    job = files(tmp_path, job=f"import my_helper\n{JOB}", my_helper="\n\nimport queue\n", **{"queue/__init__": ""})
    with pytest.raises(JobInvalid, match=r"my_helper\.py, line 3 imports 'queue' .*rename queue"):
        check_neighbours(job)
    job = files(tmp_path, job=f"import pyarrow.compute\n{JOB}", pyarrow="")
    with pytest.raises(JobInvalid, match=r"imports 'pyarrow' and gets .*site-packages.*, not .*/pyarrow\.py"):
        check_neighbours(job)


def test_a_neighbour_of_its_own_name_is_imported_and_one_that_nobody_imports_is_nobodys_concern(tmp_path: Path) -> None:
    job = files(
        tmp_path,
        job=f"import my_helper, my_package.part, json\nfrom my_helper import it\n{JOB}",
        my_helper="import my_package\nit = 1\n",
        socket="raise ImportError('nobody means this one')\n",
        **{"my_package/__init__": "", "my_package/part": ""},
    )
    assert check(job)["ok"], check(job)


def test_a_job_file_may_be_called_as_it_likes_and_import_what_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "statistics.py").write_text(f"import statistics\nassert statistics.mean\n{JOB}")
    assert check(tmp_path / "statistics.py")["ok"]
