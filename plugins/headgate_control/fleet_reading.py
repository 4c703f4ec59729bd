"""Reads streams.yaml: what can be meant is taken, each mistake is noted with its place."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headgate_contract.cron import five_fields
from headgate_contract.errors import BadConfiguration, HeadgateError
from headgate_contract.ids import StreamName
from headgate_contract.roots import checked_root, same_root
from headgate_contract.settings import Settings, check_setting
from headgate_control.fleet_file import CRON, DeclaredStream, FleetFile, Mistake
from headgate_control.typed_yaml import check_value, compose, flat, line_of, lines_of, pairs_of, value_of, what_of

LOG = logging.getLogger(__name__)

_FLEET_KEYS = ("ignore", "root", "streams")
_STREAM_KEYS = ("directory", "job", "root", "savepoint", "settings")
_ROOT_LINE = re.compile(r"^\s*[\"']?root[\"']?\s*:\s*(?P<value>\S.*?)\s*$", re.MULTILINE)


def load_fleet(path: Path) -> FleetFile:
    """The file, every stream of it. Raises BadConfiguration for the first mistake: place, key, what is allowed."""
    found = read_fleet(path)
    if found.mistakes:
        raise found.mistakes[0].at(found.path)
    return found


def read_fleet(path: Path) -> FleetFile:
    """The file as far as it can be read, with all mistakes. Never raises for what is in it."""
    path = path.absolute()
    text = ""
    try:
        text = path.read_text()
        return _Reading(path, compose(text)).fleet()
    except OSError as error:
        mistake = Mistake(stream=None, what=f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        mistake = Mistake(stream=None, what=f"is not YAML: {error}")
    except yaml.YAMLError as error:
        mistake = Mistake(stream=None, what=f"is not YAML: {what_of(error)}", line=line_of(error))
    except Exception as error:
        LOG.exception("%s cannot be read", path)
        mistake = Mistake(stream=None, what=f"cannot be read: {_unforeseen(error)}")
    return FleetFile(path=path, mistakes=(mistake,), is_read=False, roots=_roots_in(text, path))


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the file says of one stream."""

    label: str | None
    """What stands for its name, whether it can be one or not; None: no text does."""
    where: str
    lines: Mapping[str, int]
    """By key; that of the stream itself is under ""."""
    about: Mapping[Any, Any]


class _Reading:
    """One reading of a file: what is right is taken, each mistake noted."""

    def __init__(self, path: Path, top: yaml.Node | None) -> None:
        self._path = path
        self._top = top
        self._mistakes: list[Mistake] = []
        self._located: dict[str, str | None] = {}
        self._roots: list[str] = []
        self._names: set[str] = set()
        self._ignored: set[str] = set()
        self._ignored_roots: set[str] = set()
        self._root_fault = False

    def fleet(self) -> FleetFile:
        entries = {key.value: value for key, value in pairs_of(self._top) if isinstance(key, yaml.ScalarNode)}
        if not isinstance(self._top, yaml.MappingNode) or "streams" not in entries:
            self._check_top()
            if not self._mistakes:
                self._note(None, 1, "should be a mapping with the key 'streams'")
            return self._made({}, None, is_read=False)
        self._check_top()
        root = self._root(entries.get("root"))
        declared = entries["streams"]
        nothing = isinstance(declared, yaml.ScalarNode) and declared.tag.endswith(":null")
        if not nothing and not isinstance(declared, yaml.MappingNode):
            self._note(None, _line(declared), "streams should be a mapping of stream names")
            return self._made({}, root, is_read=False)
        streams = self._streams(declared, root)
        self._ignore(entries.get("ignore"))
        return self._made(streams, root, is_read=True)

    def _streams(self, declared: yaml.Node, root: str | None) -> dict[StreamName, DeclaredStream]:
        """Those that can be meant, by name. What is wrong in an entry is told whatever is wrong with its name."""
        streams: dict[StreamName, DeclaredStream] = {}
        for key, node in pairs_of(declared):
            name = self._name(key)
            if name is not None and name in self._names:
                streams.pop(name, None)  # which of the two is meant, nobody can tell
                self._located.pop(name, None)
                self._note(name, _line(key), f"stream {name}: the key {name!r} is there twice")
                name = None
            elif name is not None:
                self._names.add(name)
            found = self._stream(key, name, node, root)
            if found is not None:
                streams[found.name] = found
        return streams

    def _name(self, key: yaml.Node) -> StreamName | None:
        """The name of a stream, if it can be one."""
        if not isinstance(key, yaml.ScalarNode):
            self._note(None, _line(key), "what names this stream is no text")
            return None
        where = f"stream {key.value}"
        try:
            typed = value_of(key)
            if isinstance(typed, str):
                return StreamName(key.value)
            what = f"{where}: YAML reads this name as {typed!r}"
            self._note(key.value, _line(key), what, "put the name in quotes")
        except Exception as error:  # noqa: BLE001  (as in _stream)
            self._note_error(key.value, _line(key), error, where)
        return None

    def _made(self, streams: Mapping[StreamName, DeclaredStream], root: str | None, *, is_read: bool) -> FleetFile:
        return FleetFile(
            path=self._path,
            root=root,
            streams=streams,
            mistakes=tuple(sorted(self._mistakes, key=lambda each: each.line or 0)),
            is_read=is_read,
            located=self._located,
            roots=tuple(dict.fromkeys(self._roots)),
            ignored=frozenset(self._ignored),
            ignored_roots=frozenset(self._ignored_roots),
        )

    def _check_top(self) -> None:
        seen: set[str] = set()
        for key, _ in pairs_of(self._top):
            if not isinstance(key, yaml.ScalarNode):  # {{ root }}, which nobody has filled in, is one
                hint = f"allowed are {', '.join(_FLEET_KEYS)}; templates are not filled in here"
                self._note(None, _line(key), "this key is no text", hint)
                continue
            if key.value in seen:
                self._note(None, _line(key), f"the key {key.value!r} is there twice")
            elif key.value not in _FLEET_KEYS:
                self._note(None, _line(key), *_unknown(key.value, _FLEET_KEYS))
            seen.add(key.value)

    def _root(self, node: yaml.Node | None) -> str | None:
        """The root for all."""
        if node is None:
            return None
        try:
            root = checked_root(_text(value_of(node), "root"), near=self._path.parent)
        except Exception as error:  # noqa: BLE001  (as in _stream)
            self._note_error(None, _line(node), error, "")
            self._root_fault = True
            return None
        self._roots.append(root)
        return root

    def _ignore(self, node: yaml.Node | None) -> None:
        """What is not to be looked after: names of streams, and roots. What the file declares, it does not ignore."""
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return
        if not isinstance(node, yaml.SequenceNode):
            self._note(None, _line(node), "ignore should be a list", "write `- NAME` for each stream or root")
            return
        named = {same_root(root) for root in self._roots}
        for each in node.value:
            try:
                text = _text(value_of(each), "ignore")
                if "/" in text:
                    self._ignore_root(same_root(checked_root(text, "ignore", near=self._path.parent)), named, each)
                elif StreamName(text) in self._names:
                    self._note(None, _line(each), f"stream {text} is declared, and among those to ignore")
                else:
                    self._ignored.add(text)
            except Exception as error:  # noqa: BLE001  (as in _stream)
                self._note_error(None, _line(each), error, "")

    def _ignore_root(self, root: str, named: Collection[str], node: yaml.Node) -> None:
        if root in named:
            self._note(None, _line(node), f"the root {root} is named for streams, and among what to ignore")
        else:
            self._ignored_roots.add(root)

    def _stream(
        self, key: yaml.Node, name: StreamName | None, node: yaml.Node, root: str | None
    ) -> DeclaredStream | None:
        """One entry, if it and its name can be meant."""
        before = len(self._mistakes)
        label = key.value if isinstance(key, yaml.ScalarNode) else None
        where = f"stream {label}" if label is not None else "this stream"
        try:
            about = _mapping(value_of(node), where, "a mapping with the key 'job'")
            entry = _Entry(label, where, {"": _line(key), **lines_of(node)}, about)
            found = self._declared(name, entry, root)
        except Exception as error:  # noqa: BLE001  (whatever is wrong with one stream, the others are looked after)
            self._note_error(label, _line(key), error, where)
            return None
        return found if len(self._mistakes) == before else None

    def _declared(self, name: StreamName | None, entry: _Entry, root: str | None) -> DeclaredStream | None:
        for key in entry.about:
            if key not in _STREAM_KEYS:
                what, hint = _unknown(key, _STREAM_KEYS)
                self._note_in(entry, str(key), what, hint, sign=":")
        if "job" not in entry.about:
            self._note_in(entry, "", "has no job", "give the path of its Python file: `job: jobs/orders.py`")
        root = self._root_of(name, entry, root)
        job, directory = self._place(entry, "job", "-"), self._place(entry, "directory", ".")
        settings = self._settings(entry)
        if name is None:
            return None
        return DeclaredStream(name=name, job=job, directory=directory, root=root, settings=settings)

    def _root_of(self, name: StreamName | None, entry: _Entry, root: str | None) -> str | None:
        """Where the stream is: by its own word, or else `root`; what is known of it is noted."""
        if "root" in entry.about:
            try:
                root = checked_root(_text(entry.about["root"], f"{entry.where}: root"), near=self._path.parent)
            except HeadgateError as error:
                self._note_error(entry.label, entry.lines.get("root"), error, entry.where)
                return root
            self._roots.append(root)
        elif self._root_fault:
            self._note_in(entry, "", "the root of the file cannot be meant, and it has none of its own", sign=":")
            return root
        if name is not None:
            self._located[str(name)] = root
        return root

    def _place(self, entry: _Entry, key: str, default: str) -> Path:
        try:
            return _resolved(self._path, _text(entry.about.get(key, default), f"{entry.where}: {key}"))
        except HeadgateError as error:
            self._note_error(entry.label, entry.lines.get(key), error, entry.where)
        except (OSError, RuntimeError, ValueError) as error:  # the home of nobody; no path at all
            self._note_in(entry, key, f"{key}: {_unforeseen(error)}", "write an absolute path", sign=":")
        return self._path.parent

    def _settings(self, entry: _Entry) -> Mapping[str, str]:
        """The settings that can be meant; what cannot is noted one by one."""
        given: dict[str, object] = {}
        written = entry.about.get("settings") or {}
        if not isinstance(written, dict):
            self._note_in(entry, "settings", f"settings should be a mapping, not {written!r}", sign=":")
            written = {}
        for key, value in flat(written):
            try:
                _add_setting(given, key, value)
            except HeadgateError as error:
                self._note_error(entry.label, entry.lines.get(f"settings.{key}"), error, entry.where)
        places = {key: entry.lines.get(f"settings.{key}", entry.lines.get("settings")) for key in given}
        if "savepoint" in entry.about:
            if CRON in given:
                self._note(entry.label, places[CRON], f"{entry.where} sets both savepoint and {CRON}", "keep savepoint")
            given[CRON], places[CRON] = entry.about["savepoint"], entry.lines.get("savepoint")
        try:
            settings = Settings(given).given
        except HeadgateError as error:
            faults = [key for key in given if self._check_setting(entry, key, given[key], places[key])]
            if not faults:
                self._note_error(entry.label, entry.lines.get("settings", entry.lines[""]), error, entry.where)
            return {}
        try:
            five_fields(settings[CRON], CRON) if CRON in settings else None
        except HeadgateError as error:
            self._note_error(entry.label, places[CRON], error, entry.where)
        return settings

    def _check_setting(self, entry: _Entry, key: str, value: object, line: int | None) -> bool:
        """Note a setting that cannot be meant by itself."""
        try:
            if key == CRON:
                _text(value, key)
            check_setting(key, value)
        except HeadgateError as error:
            self._note_error(entry.label, line, error, entry.where)
            return True
        return False

    def _note_in(self, entry: _Entry, key: str, what: str, hint: str = "", *, sign: str = "") -> None:
        self._note(entry.label, entry.lines.get(key), f"{entry.where}{sign} {what}", hint)

    def _note(self, stream: str | None, line: int | None, what: str, hint: str = "") -> None:
        self._mistakes.append(Mistake(stream=stream, what=what, hint=hint, line=line))

    def _note_error(self, stream: str | None, line: int | None, error: Exception, where: str) -> None:
        if isinstance(error, yaml.YAMLError):
            self._note(stream, line_of(error) or line, f"{where}: {what_of(error)}" if where else what_of(error))
        elif isinstance(error, HeadgateError):
            told = error.what if not where or error.what.startswith(where) else f"{where}: {error.what}"
            self._note(stream, line, told, error.hint)
        else:
            LOG.warning("%s: %s cannot be read", self._path, where, exc_info=error)
            self._note(stream, line, f"{where or 'root'} cannot be read: {_unforeseen(error)}")


def _unforeseen(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _roots_in(text: str, path: Path) -> tuple[str, ...]:
    """The roots that the lines of a file name which is no YAML: what runs there is to be found all the same."""
    found = []
    for match in _ROOT_LINE.finditer(text):
        try:
            value = yaml.safe_load(match["value"])
            found.append(checked_root(_text(value, "root"), near=path.parent))
        except Exception:  # noqa: BLE001, S112  (a line of a file that is not even YAML)
            continue  # nobody can tell what it was meant to be
    return tuple(dict.fromkeys(found))


def _resolved(path: Path, relative: str) -> Path:
    return (path.parent / Path(relative).expanduser()).resolve()


def load_settings(path: Path) -> dict[str, object]:
    """A YAML file with nothing but settings, dotted or nested. Raises BadConfiguration."""
    settings: dict[str, object] = {}
    try:
        entry = value_of(compose(path.read_text())) or {}
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    for key, value in flat(_mapping(entry, f"{path}: settings", "a mapping")):
        try:
            _add_setting(settings, key, value)
        except BadConfiguration as error:
            raise BadConfiguration(f"{path}: {error.what}", hint=error.hint) from None
    return settings


def _add_setting(settings: dict[str, object], key: str, value: object) -> None:
    check_value(key, value)
    if key in settings:
        raise BadConfiguration(f"{key} is there twice, dotted and nested")
    settings[key] = value


def _mapping(value: object, where: str, expected: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadConfiguration(f"{where} should be {expected}, not {value!r}")
    return value


def _unknown(key: object, allowed: tuple[str, ...]) -> tuple[str, str]:
    near = difflib.get_close_matches(str(key), allowed, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key {key!r}", f"{hint}allowed are {', '.join(allowed)}"


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadConfiguration(f"{where} should be a text, not {value!r}")
    return value.strip()
