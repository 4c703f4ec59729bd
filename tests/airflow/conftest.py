"""One migrated Airflow home for the whole session, and a small fleet for each test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.airflow.small_fleet import ENGINE, SmallFleet
from tests.house_rules import REPO

OWN_DAGS = Path(__file__).parent / "dags"
BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


@pytest.fixture(scope="session")
def airflow_home() -> Iterator[None]:
    """A database with Airflow's tables, and two folders of DAGs: those that we ship, and the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        bundles = {"shipped": REPO / "dags", "own": OWN_DAGS}
        patch.setenv(
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST",
            json.dumps(
                [{"name": name, "classpath": BUNDLE, "kwargs": {"path": str(path)}} for name, path in bundles.items()]
            ),
        )
        from airflow.utils.db import initdb

        initdb()
        yield


@pytest.fixture
def make_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SmallFleet]]:
    """Makes fleets whose drivers are ended behind the test; the last one made is the one that Airflow reads."""
    made: list[SmallFleet] = []
    for name, value in ENGINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_WORK", str(tmp_path / "work"))

    def make(*names: str, **settings: str) -> SmallFleet:
        fleet = SmallFleet(tmp_path / f"fleet{len(made)}", names, **settings)
        monkeypatch.setenv("HEADGATE_STREAMS_FILE", str(fleet.file))
        made.append(fleet)
        return fleet

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def fleet(make_fleet: Callable[..., SmallFleet]) -> SmallFleet:
    """One stream, `counts`."""
    return make_fleet("counts")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Airflow and what it stands on warn of themselves in many places; a warning of our own modules fails a test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.filterwarnings("error:::headgate_"))
