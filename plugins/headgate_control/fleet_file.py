"""What streams.yaml says, the fleet as it is meant to be, and where it and what is deployed have drifted apart.

root: s3://bucket/headgate        # optional, for all streams
streams:
  orders:
    job: jobs/orders.py           # relative to this file
    root: file:///srv/headgate    # optional, instead of the root above
    directory: .                  # optional: the driver's working directory, this file's folder by default
    savepoint: "0 3 * * *"        # optional, the same as the setting headgate.savepoint.cron
    settings:                     # optional; dotted or nested
      execution.checkpointing.interval: 10 s
ignore:                           # optional: what is on these roots and none of this fleet's business
  - theirs                        # a stream that somebody else looks after
  - file:///srv/old-headgate      # a root that this file has named once, and that nobody is to look at any more

A mistake in one stream leaves that stream out, and no other.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headgate_contract import wire
from headgate_contract.credentials import is_secret
from headgate_contract.errors import BadConfiguration, HeadgateError, NotFound
from headgate_contract.ids import StreamName
from headgate_contract.records import Deployed
from headgate_contract.settings import Settings

CRON = "headgate.savepoint.cron"


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
class Mistake:
    """One thing in the file that cannot be meant."""

    stream: str | None
    """None: it is none of a single stream."""
    what: str
    hint: str = ""
    line: int | None = None

    def at(self, path: Path) -> BadConfiguration:
        """The mistake as an error, with its place."""
        place = f"{path}:{self.line}" if self.line is not None else str(path)
        return BadConfiguration(f"{place}: {self.what}", hint=self.hint)


@dataclass(frozen=True, kw_only=True)
class FleetFile:
    """What a streams.yaml says, and what of it cannot be meant."""

    path: Path
    root: str | None = None
    """For all streams that name none of their own."""
    streams: Mapping[StreamName, DeclaredStream] = field(default_factory=dict)
    """Those without a mistake."""
    mistakes: tuple[Mistake, ...] = ()
    is_read: bool = True
    """False: not even which streams there are can be told."""
    located: Mapping[str, str | None] = field(default_factory=dict)
    """By name the root of each stream of which it can be told, also of such as have another mistake."""
    roots: tuple[str, ...] = ()
    """All that are named in it, also where nothing else could be read."""
    ignored: frozenset[str] = frozenset()
    """Streams that are neither watched nor warned of, though they are at work on one of the roots."""
    ignored_roots: frozenset[str] = frozenset()
    """Roots that were named once and are not to be looked at any more."""

    @property
    def left_out(self) -> Mapping[str, Mistake]:
        """The streams with a mistake, and the first one of each."""
        return {each.stream: each for each in reversed(self.mistakes) if each.stream is not None}

    def stream(self, name: str) -> DeclaredStream:
        """The stream `name`. Raises BadConfiguration for its mistake, or NotFound with the nearest one."""
        found = self.streams.get(StreamName(name))
        if found is not None:
            return found
        mistake = self.left_out.get(name) or (None if self.is_read else self.mistakes[0])
        if mistake is not None:
            raise mistake.at(self.path)
        near = difflib.get_close_matches(name, self.streams, 1)
        raise NotFound(f"{self.path} has no stream {name}", hint=f"did you mean {near[0]}?" if near else "")


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing on which the file and what is deployed differ; None: not set on that side.

    Of what is probably a secret, only whether it is set.
    """

    key: str
    declared: str | None
    deployed: str | None

    def __str__(self) -> str:
        return self.told("deployed")

    def told(self, there: str) -> str:
        """In words; `there` says where the second side was found."""

        def side(value: str | None) -> str:
            if value is None:
                usual = _meaning(Settings({}), self.key)
                return "not set" if usual is None else f"not set ({usual})"
            return value if value == _HIDDEN else repr(value)

        return f"{self.key}: {side(self.declared)} in the file, {side(self.deployed)} {there}"


_HIDDEN = "another value (not shown)"


def drift(declared: DeclaredStream, deployed: Deployed | None) -> tuple[Drift, ...]:
    """Where the two differ, by key: settings, the job file and its content, the working directory.

    `1 min` and `60 s` are the same, and so are a default that is written down and one that is not.
    """

    def shown(key: str, value: str | None) -> str | None:
        return _HIDDEN if value is not None and is_secret(key) else value

    if deployed is None:
        return (Drift("job", str(declared.job), None),)
    file = {"job": str(declared.job), "directory": str(declared.directory), **declared.settings}
    now = {"job": deployed.job, "directory": deployed.directory, **deployed.settings}
    found = [
        Drift(key, shown(key, file.get(key)), shown(key, now.get(key)))
        for key in sorted({*file, *now})
        if file.get(key) != now.get(key) and not _mean_the_same(key, declared.settings, deployed.settings)
    ]
    try:
        digest = wire.sha256(declared.job.read_bytes())
    except OSError:
        digest = "unreadable"
    if file["job"] == now["job"] and digest != deployed.job_sha256:
        found.append(Drift("job content (sha256)", digest[:12], deployed.job_sha256[:12]))
    return tuple(found)


def _mean_the_same(key: str, declared: Mapping[str, str], deployed: Mapping[str, str]) -> bool:
    try:
        file, now = Settings(declared), Settings(deployed)
    except HeadgateError:  # of an older release
        return False
    return key in file and key in now and _meaning(file, key) == _meaning(now, key)


def _meaning(settings: Settings, key: str) -> object:
    """The value of a setting, or its default; None for what is no setting of ours."""
    return settings.get(key)
