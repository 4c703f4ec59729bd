"""Which streams write into one folder: their readers would take the rows of both for one table's. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from headgate_contract.ids import StreamName
from headgate_contract.moved import spelled
from headgate_contract.records import Deployed


def shared_folders(stream: StreamName, wanted: Deployed, others: Mapping[StreamName, Deployed]) -> tuple[str, ...]:
    """A warning for each folder of `wanted`'s sinks that another sink, of this stream or another, writes into as well.

    A folder within another one counts: who reads the outer one reads both.
    """
    found = []
    own = list(_folders(wanted))
    for number, (uid, folder) in enumerate(own):
        for other_uid, other in own[number + 1 :]:
            if _overlap(folder, other):
                found.append(_told(f"the sinks {uid} and {other_uid} both write", folder, other))
        for name, deployed in sorted(others.items()):
            for other_uid, other in _folders(deployed) if name != stream else ():
                if _overlap(folder, other):
                    found.append(_told(f"sink {uid} and sink {other_uid} of stream {name} both write", folder, other))
    return tuple(found)


def _told(who: str, folder: str, other: str) -> str:
    where = f"to {folder}" if folder == other else f"below one folder, {min(folder, other, key=len)}"
    return f"{who} {where}: who reads it takes their rows for one table's; give each a folder of its own"


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _folders(deployed: Deployed) -> Iterable[tuple[str, str]]:
    """The folders that the sinks of `deployed` write into, spelled alike."""
    for uid, about in sorted(deployed.plan.get("sinks", {}).items()):
        path = about.get("path") if isinstance(about, dict) else None
        if isinstance(path, str) and path:
            yield uid, _spelled(path, deployed.directory)


def _spelled(path: str, directory: str) -> str:
    scheme, separator, rest = spelled(path, directory).rpartition("://")
    return f"{scheme}{separator}{posixpath.normpath(rest)}"
