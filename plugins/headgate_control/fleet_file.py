"""Reads streams.yaml, the fleet as it is meant to be, and tells where it and what is deployed have drifted apart.

root: s3://bucket/headgate        # optional, for all streams
streams:
  orders:
    job: jobs/orders.py           # relative to this file
    root: file:///srv/headgate    # optional, instead of the root above
    directory: .                  # optional: the driver's working directory, this file's folder by default
    savepoint: "0 3 * * *"        # optional, the same as the setting headgate.savepoint.cron
    settings:                     # optional; dotted or nested
      execution.checkpointing.interval: 10 s
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headgate_contract import wire
from headgate_contract.errors import BadConfiguration, HeadgateError, NotFound
from headgate_contract.ids import StreamName
from headgate_contract.records import Deployed
from headgate_contract.settings import Settings

CRON = "headgate.savepoint.cron"
_FLEET_KEYS = ("root", "streams")
_STREAM_KEYS = ("directory", "job", "root", "savepoint", "settings")


@dataclass(frozen=True, kw_only=True)
class DeclaredStream:
    """One stream of the file, checked."""

    name: StreamName
    job: Path
    directory: Path
    root: str | None
    """Where its storage is, or None if the file leaves that to whoever reads it."""
    settings: Mapping[str, str]
    """Under current names, the savepoint's cron among them."""

    @property
    def savepoint(self) -> str | None:
        """The cron by which savepoints are taken."""
        return self.settings.get(CRON)


@dataclass(frozen=True, kw_only=True)
class FleetFile:
    """A whole streams.yaml, checked."""

    path: Path
    streams: Mapping[StreamName, DeclaredStream]

    def stream(self, name: str) -> DeclaredStream:
        """The stream `name`. Raises NotFound with the nearest one."""
        found = self.streams.get(StreamName(name))
        if found is None:
            near = difflib.get_close_matches(name, self.streams, 1)
            raise NotFound(f"{self.path} has no stream {name}", hint=f"did you mean {near[0]}?" if near else "")
        return found


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing on which the file and what is deployed differ; None: not set on that side."""

    key: str
    declared: str | None
    deployed: str | None

    def __str__(self) -> str:
        def side(value: str | None) -> str:
            return "not set" if value is None else repr(value)

        return f"{self.key}: {side(self.declared)} in the file, {side(self.deployed)} deployed"


def load_fleet(path: Path) -> FleetFile:
    """Read and check the file. Raises BadConfiguration naming the stream, the key, the value and what is allowed."""
    path = path.absolute()
    fleet = _mapping(_load(path), str(path), "a mapping with the key 'streams'")
    _check_keys(fleet, _FLEET_KEYS, str(path))
    root = _text(fleet["root"], f"{path}: root") if "root" in fleet else None
    declared = _mapping(fleet.get("streams") or {}, f"{path}: streams", "a mapping of stream names")
    streams = [_stream(name, entry, path, root) for name, entry in declared.items()]
    return FleetFile(path=path, streams={stream.name: stream for stream in streams})


def drift(declared: DeclaredStream, deployed: Deployed | None) -> tuple[Drift, ...]:
    """Where the two differ, by key: settings, the job file and its content, the working directory."""
    if deployed is None:
        return (Drift("job", str(declared.job), None),)
    file = {"job": str(declared.job), "directory": str(declared.directory), **declared.settings}
    now = {"job": deployed.job, "directory": deployed.directory, **deployed.settings}
    found = [Drift(key, file.get(key), now.get(key)) for key in sorted({*file, *now}) if file.get(key) != now.get(key)]
    try:
        digest = wire.sha256(declared.job.read_bytes())
    except OSError:
        digest = "unreadable"
    if file["job"] == now["job"] and digest != deployed.job_sha256:
        found.append(Drift("job content (sha256)", digest[:12], deployed.job_sha256[:12]))
    return tuple(found)


def _load(path: Path) -> object:
    try:
        return yaml.load(path.read_text(), Loader=_AsTyped)
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def _stream(name: object, entry: object, path: Path, root: str | None) -> DeclaredStream:
    where = f"{path}: stream {name}"
    if not isinstance(name, str):
        raise BadConfiguration(f"{where}: YAML reads this name as {name!r}", hint="put the name in quotes")
    try:
        stream = StreamName(name)
        about = _mapping(entry, where, "a mapping with the key 'job'")
        _check_keys(about, _STREAM_KEYS, where)
        if "job" not in about:
            raise BadConfiguration(
                f"{where} has no job", hint="give the path of its Python file: `job: jobs/orders.py`"
            )
        settings = _settings(about.get("settings") or {}, where)
        if "savepoint" in about:
            if CRON in settings:
                raise BadConfiguration(f"{where} sets both savepoint and {CRON}", hint="keep savepoint")
            settings[CRON] = _text(about["savepoint"], f"{where}: savepoint")
        return DeclaredStream(
            name=stream,
            job=_resolved(path, _text(about["job"], f"{where}: job")),
            directory=_resolved(path, _text(about.get("directory", "."), f"{where}: directory")),
            root=_text(about["root"], f"{where}: root") if "root" in about else root,
            settings=Settings(settings).given,
        )
    except HeadgateError as error:
        what = error.what if error.what.startswith(str(path)) else f"{where}: {error.what}"
        raise BadConfiguration(what, hint=error.hint) from None


def _resolved(path: Path, relative: str) -> Path:
    return (path.parent / Path(relative).expanduser()).resolve()


def load_settings(path: Path) -> dict[str, object]:
    """A YAML file with nothing but settings, dotted or nested. Raises BadConfiguration."""
    return _settings(_load(path) or {}, str(path))


def _settings(entry: object, where: str) -> dict[str, object]:
    settings: dict[str, object] = {}
    for key, value in _flat(_mapping(entry, f"{where}: settings", "a mapping"), where):
        if key in settings:
            raise BadConfiguration(f"{where}: {key} is there twice, dotted and nested")
        settings[key] = value
    return settings


def _flat(settings: Mapping[Any, Any], where: str, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested mappings as dotted keys."""
    for key, value in settings.items():
        full = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, where, f"{full}.")
        elif value is None or isinstance(value, list):
            raise BadConfiguration(f"{where}: {full} has {'no value' if value is None else 'a list as its value'}")
        else:
            yield full, value


def _mapping(value: object, where: str, expected: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadConfiguration(f"{where} should be {expected}, not {value!r}")
    return value


def _check_keys(found: Mapping[Any, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in found:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadConfiguration(f"{where}: unknown key {key!r}", hint=f"{hint}allowed are {', '.join(allowed)}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadConfiguration(f"{where} should be a text, not {value!r}")
    return value.strip()


class _AsTyped(yaml.SafeLoader):
    """YAML's safe loader, which refuses what would silently be something else than was typed.

    That is a key that is there twice, and a number that YAML reads to another base (1:30 as 90, 010 as 8).
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is no key", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """An integer or a float, as they are written every day."""
        text = str(self.construct_scalar(node))
        if ":" in text or re.fullmatch(r"[-+]?0[0-9_]+", text):
            raise yaml.constructor.ConstructorError(
                None, None, f"YAML reads {text} to another base than ten: put it in quotes", node.start_mark
            )
        whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _tag in ("int", "float"):
    _AsTyped.add_constructor(f"tag:yaml.org,2002:{_tag}", _AsTyped.construct_number)
