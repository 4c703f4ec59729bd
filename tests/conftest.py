"""What holds for every test: the house rules, and a world that is not the user's own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings

settings.register_profile(
    "every run alike", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("every run alike")  # on a busy machine, too: an example may take as long as it likes

pytest_plugins = ["tests.house_rules", "tests.account", "tests.spec.listing", "tests.spec.breaking"]

pytest.register_assert_rewrite(  # shared suites and worlds: their assertions say what they compared
    *(f"tests.runtime.state.{name}" for name in ("samples", "suite_refusals", "suite_tables", "suite_versions"))
)

REPO = Path(__file__).resolve().parent.parent


def _leave_the_users_world() -> None:
    """Give Airflow a home of this run's own before anything imports it; forget the shell's Headgate settings."""
    for name in [name for name in os.environ if name.startswith(("AIRFLOW", "HEADGATE_")) and name not in KEPT]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="headgate-tests-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["AIRFLOW_HOME"] = home
    os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(REPO / "plugins")
    os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(REPO / "dags")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


KEPT = {
    "HEADGATE_CACHE",  # where fetched servers are kept
    "HEADGATE_CI_RUN",  # the mark by which .ci/run knows its processes again
}
_leave_the_users_world()


@pytest.fixture(scope="module", autouse=True)
def _forget_what_memory_holds() -> Iterator[None]:
    """A list of a memory:// root looks through all roots of the process: those of other modules slow it down."""
    before = set(MemoryFileSystem.store)
    yield
    for path in set(MemoryFileSystem.store) - before:
        MemoryFileSystem.store.pop(path, None)
