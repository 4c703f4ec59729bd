"""The walls between the packages hold, and each of them falls when somebody builds a door."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.e2e

SETTINGS = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]
WALLS: dict[str, str] = {contract["id"]: contract["name"] for contract in SETTINGS["contracts"]}

# Doors that somebody might build, by the wall that they go through: (the folder, what a module there would say).
BREACHES: dict[str, list[tuple[str, str]]] = {
    "contract": [
        ("plugins/headgate_contract", "import pyarrow"),
        ("plugins/headgate_contract", "import airflow.sdk"),
        ("plugins/headgate_contract", "def later():\n    from pyspark import sql"),
        ("plugins/headgate_contract", "import headgate_control"),
        ("plugins/headgate_contract/deeper", "import headgate"),
    ],
    "control": [
        ("plugins/headgate_control", "import pyspark"),
        ("plugins/headgate_control", "from airflow.sdk import DAG"),
        ("plugins/headgate_control", "from headgate import coordinator"),
        ("plugins/headgate_control", "import headgate_airflow"),
    ],
    "airflow": [
        ("plugins/headgate_airflow", "def later():\n    import pyspark"),
        ("plugins/headgate_airflow/operators", "import headgate"),
    ],
    "runtime": [
        ("spark_jobs/headgate", "import airflow"),
        ("spark_jobs/headgate/sink", "import headgate_control"),
        ("spark_jobs/headgate/spark", "import headgate_airflow"),
        ("spark_jobs/headgate/step", "import headgate_plugin"),
    ],
    "coordinator": [
        ("spark_jobs/headgate/coordinator", "import headgate.source"),
        ("spark_jobs/headgate/coordinator", "from headgate import gate"),
        ("spark_jobs/headgate/coordinator", "def later():\n    from headgate import step"),
        ("spark_jobs/headgate/coordinator", "import headgate.sink"),
    ],
    "spark": [
        ("spark_jobs/headgate", "def later():\n    import pyspark"),
        ("spark_jobs/headgate/step", "from pyspark.sql import DataFrame"),
        ("spark_jobs/headgate/state", "import pyspark.errors"),
    ],
}


def lint_imports(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `make lint` runs, on the packages below `root`."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache", *arguments],
        cwd=REPO,
        env=os.environ | {"PYTHONPATH": f"{root / 'plugins'}:{root / 'spark_jobs'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy of the packages, to be broken and mended."""
    root = tmp_path_factory.mktemp("house")
    for folder in ("plugins", "spark_jobs"):
        shutil.copytree(REPO / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


class Door:
    """One planted module: written into the house, named as import-linter names it, and taken out again."""

    def __init__(self, house: Path, number: int, folder: str, text: str) -> None:
        self.file = house / folder / f"planted_{number}.py"
        self.name = ".".join(self.file.relative_to(house).with_suffix("").parts[1:])
        self.text = text

    def build(self) -> None:
        self.file.parent.mkdir(exist_ok=True)
        (self.file.parent / "__init__.py").touch()
        self.file.write_text(self.text + "\n")


@pytest.fixture
def doors(house: Path, request: pytest.FixtureRequest) -> Iterator[list[Door]]:
    planted = [Door(house, number, *breach) for number, breach in enumerate(BREACHES[request.param])]
    for door in planted:
        door.build()
    yield planted
    for door in planted:
        door.file.unlink()


def test_the_walls_hold() -> None:
    ran = lint_imports(REPO)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"Contracts: {len(WALLS)} kept, 0 broken." in ran.stdout


def test_every_wall_has_its_breaches() -> None:
    assert set(BREACHES) == set(WALLS)


@pytest.mark.parametrize(("wall", "doors"), [(wall, wall) for wall in BREACHES], ids=BREACHES, indirect=["doors"])
def test_a_planted_import_breaks_its_wall(house: Path, wall: str, doors: list[Door]) -> None:
    ran = lint_imports(house, "--contract", wall)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"{WALLS[wall]} BROKEN" in ran.stdout
    _, _, report = ran.stdout.partition("Broken contracts")
    unseen = [f"{door.name}: {door.text}" for door in doors if f"{door.name} ->" not in report]
    assert unseen == []
