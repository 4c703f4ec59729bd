"""The environment that a driver gets: the launcher's own, without Airflow's settings and without secrets.

Variables that begin with AWS_ stay, secrets among them: they are how a driver reaches an S3 root. What else a job
needs, and looks like a secret, is let through by name in $HEADGATE_PASS_ENV (names, separated by commas).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import headgate_contract
from headgate_contract.errors import BadConfiguration

PASS = "HEADGATE_PASS_ENV"
OPTIONS = "HEADGATE_ROOT_OPTIONS"
"""Carries the root's fsspec options, as JSON, to those who open it without being told."""
_AIRFLOW = ("AIRFLOW_", "_AIRFLOW_")
_SECRET = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(API|PRIVATE|ACCESS)_?KEY|_KEY$|CONNECTION_STRING|FERNET"
    r"|(^|_)(PWD|DSN)$",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"://[^\s/@:]*:[^\s/@]+@")
_KEPT_PREFIXES = ("AWS_",)
_KEPT = frozenset({"PWD", "OLDPWD", OPTIONS})


def is_withheld(name: str, value: str = "", passed: Iterable[str] = ()) -> bool:
    """Is the variable `name` kept from drivers, for what it is called, or since `value` holds a URL with a password?"""
    if name in passed or name in _KEPT or name.startswith(_KEPT_PREFIXES):
        return False
    return name.startswith(_AIRFLOW) or bool(_SECRET.search(name) or _PASSWORD_IN_URL.search(value))


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What is left of `environ` for a driver."""
    passed = frozenset(name.strip() for name in environ.get(PASS, "").split(",") if name.strip())
    return {name: value for name, value in environ.items() if not is_withheld(name, value, passed)}


def options_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """The root's fsspec options that `environ` carries. Raises BadConfiguration."""
    text = environ.get(OPTIONS)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfiguration(f"${OPTIONS} is not JSON: {error}") from None
    if not isinstance(options, dict):
        raise BadConfiguration(f"${OPTIONS} should be a JSON object")
    return options


def python_path(folders: Iterable[str], existing: str) -> str:
    """`folders` before what was on the PYTHONPATH already, each once; a relative one means the launcher's folder."""
    parts = [*folders, *(os.path.abspath(part) for part in existing.split(os.pathsep) if part)]
    return os.pathsep.join(dict.fromkeys(parts))


def environment_of_drivers(environ: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """A driver's whole environment: Headgate's packages on its path, and Spark's workers on this very Python."""
    plugins = Path(headgate_contract.__file__).resolve().parent.parent
    folders = [str(plugins), str(_runtime(plugins))]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        **without_secrets(environ),
        "PYTHONPATH": python_path(folders, environ.get("PYTHONPATH", "")),
        **added,
    }


def _runtime(plugins: Path) -> Path:
    """The folder that holds the package `headgate`: beside plugins/, or wherever Python would find it."""
    beside = plugins.parent / "spark_jobs"
    found = importlib.util.find_spec("headgate") if not (beside / "headgate").is_dir() else None
    return Path(found.origin).parent.parent if found is not None and found.origin else beside
