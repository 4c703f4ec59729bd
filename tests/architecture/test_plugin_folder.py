"""Airflow's own loader, pointed at plugins/, registers one module and one plugin; the packages stay hidden from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.airflow

LOAD = """
import json, sys
from pathlib import Path
from airflow import plugins_manager

folder = Path(sys.argv[1])
before = dict(sys.modules)
plugins, errors = plugins_manager._get_plugins()
ours = {
    name: Path(module.__file__).relative_to(folder)
    for name, module in sys.modules.items()
    if module is not before.get(name) and folder in Path(getattr(module, "__file__", None) or "/").parents
}
imported_properly = {
    name for name, file in ours.items()
    if len(file.parts) > 1 and name == ".".join(file.with_suffix("").parts).removesuffix(".__init__")
}
print("RESULT " + json.dumps({
    "modules": sorted(set(ours) - imported_properly),
    "plugins": [p.name for p in plugins if str(p.source).startswith("$PLUGINS_FOLDER")],
    "errors": errors,
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Our plugin folder in small: what Airflow sees of it, and one package with a module of an unlucky name."""
    shutil.copy(REPO / "plugins" / ".airflowignore", tmp_path)
    (tmp_path / "headgate_plugin.py").write_text(
        "from airflow.plugins_manager import AirflowPlugin\n"
        "from headgate_sample import errors\n"
        "class SamplePlugin(AirflowPlugin):\n    name = 'sample'\n"
    )
    (tmp_path / "headgate_sample" / "deeper").mkdir(parents=True)
    for name in ("__init__", "errors", "deeper/__init__", "deeper/queue"):
        (tmp_path / "headgate_sample" / f"{name}.py").write_text("")
    return tmp_path


def load(folder: Path, syntax: str = "glob") -> dict[str, object]:
    """Load `folder` as each of Airflow's processes does; in a process of its own, because it fills sys.modules."""
    settings = {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder),
        "AIRFLOW__CORE__DAG_IGNORE_FILE_SYNTAX": syntax,
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-c", LOAD, str(folder)]
    ran = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    loaded: dict[str, object] = json.loads(line.removeprefix("RESULT "))
    return loaded


def test_airflow_registers_one_module_and_one_plugin_from_our_folder() -> None:
    assert load(REPO / "plugins") == {"modules": ["headgate_plugin"], "plugins": ["headgate"], "errors": {}}


@pytest.mark.parametrize("syntax", ["glob", "regexp"])
def test_packages_stay_hidden_in_either_syntax_of_the_ignore_file(folder: Path, syntax: str) -> None:
    assert load(folder, syntax) == {"modules": ["headgate_plugin"], "plugins": ["sample"], "errors": {}}


def test_without_the_ignore_file_modules_of_packages_take_bare_names(folder: Path) -> None:
    (folder / ".airflowignore").unlink()
    assert load(folder)["modules"] == ["__init__", "errors", "headgate_plugin", "queue"]
