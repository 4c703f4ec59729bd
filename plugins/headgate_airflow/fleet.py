"""Where Airflow finds streams.yaml, and what it declares: which streams there are, on which roots."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from airflow.sdk import conf

from headgate_contract.errors import BadConfiguration
from headgate_contract.ids import StreamName
from headgate_control.fleet_file import DeclaredStream, FleetFile, load_fleet

FILE = "HEADGATE_STREAMS_FILE"
ROOT = "HEADGATE_ROOT"


def streams_file(path: Path | str | None = None) -> Path:
    """The fleet's file: $HEADGATE_STREAMS_FILE, or `path`, or streams.yaml in the DAGs folder."""
    chosen = os.environ.get(FILE) or path
    return Path(chosen) if chosen else Path(conf.get("core", "dags_folder")) / "streams.yaml"


def declared_fleet(path: Path | str | None = None) -> FleetFile:
    """The checked content of the fleet's file. Raises BadConfiguration naming stream, key, value and what is right."""
    return load_fleet(streams_file(path))


def declared_stream(stream: str, path: Path | str | None = None) -> DeclaredStream | None:
    """What the file says of `stream`, or None if there is no file, or it does not name the stream."""
    file = streams_file(path)
    return load_fleet(file).streams.get(StreamName(stream)) if file.exists() else None


def root_of(declared: DeclaredStream | None) -> str | None:
    """The root of a stream's storage: its own, or else $HEADGATE_ROOT; None leaves it to the connection."""
    return (declared.root if declared is not None else None) or os.environ.get(ROOT) or None


def by_root(fleet: FleetFile) -> Mapping[str | None, list[str]]:
    """The declared streams, grouped by where their storage is; plain strings, since Airflow stores nothing else."""
    groups: dict[str | None, list[str]] = {}
    for declared in fleet.streams.values():
        groups.setdefault(root_of(declared), []).append(str(declared.name))
    return groups


def need_declared(stream: str, path: Path | str | None = None) -> DeclaredStream:
    """What the file says of `stream`. Raises BadConfiguration if it does not name it."""
    file = streams_file(path)
    if not file.exists():
        raise BadConfiguration(f"{file} is not there", hint=f"write it, or say in ${FILE} where it is")
    return load_fleet(file).stream(stream)
