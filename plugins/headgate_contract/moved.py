"""Tells which sources and sinks of a job are at another place than an earlier generation had them at. Pure.

A source's position is a list of files by their paths, and a sink takes back only what lies where it writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from headgate_contract.catalogue import Catalogue
from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.records import Deployed
from headgate_contract.snapshot import SnapshotRef


@dataclass(frozen=True, slots=True)
class Move:
    """Where something was, and where it is now."""

    before: str
    now: str


@dataclass(frozen=True, slots=True)
class Moves:
    """What a job has at another place than one that ran before it; by the uids of now."""

    sources: Mapping[VertexUid, Move] = field(default_factory=dict)
    sinks: Mapping[VertexUid, Move] = field(default_factory=dict)


def moved_since(catalogue: Catalogue, ref: SnapshotRef | None, now: Deployed) -> Moves:
    """Since the generation that took `ref`, or else since the newest; of what another stream took nothing is known."""
    if ref is None:
        ran = catalogue.newest_generation
    else:
        ran = catalogue.generation(ref.generation) if not ref.foreign else None
    before = catalogue.deployed_at(ran.deployed) if ran is not None else None
    return Moves(_moved("sources", before, now), _moved("sinks", before, now)) if before is not None else Moves()


def published_elsewhere(catalogue: Catalogue, now: Deployed) -> dict[VertexUid, IdRanges]:
    """Of each sink of `now` the checkpoints whose output earlier generations published to another place."""
    moved: dict[int, Collection[VertexUid]] = {}
    found: dict[VertexUid, IdRanges] = {}
    for start in catalogue.generations:
        ids = catalogue.ids_of(start.generation)
        if ids and start.deployed not in moved:
            before = catalogue.deployed_at(start.deployed)
            moved[start.deployed] = _moved("sinks", before, now) if before is not None else ()
        for uid in moved[start.deployed] if ids else ():
            found[uid] = found.get(uid, IdRanges()) | ids
    return found


def published_here(
    catalogue: Catalogue, now: Deployed, published: Mapping[VertexUid, CheckpointId]
) -> dict[VertexUid, CheckpointId]:
    """Those of these newest groups of sinks that were published to where `now` has the sink, and must be there.

    What lies behind a repair was settled by it: what was gone then was given up.
    """
    places = _places("sinks", now)
    found = {}
    for uid, id in published.items():
        start = next((start for start in catalogue.generations if id in catalogue.ids_of(start.generation)), None)
        before = catalogue.deployed_at(start.deployed) if start is not None else None
        had = _places("sinks", before) if before is not None else {}
        if id >= catalogue.settled and uid in places and had.get(uid) == places[uid]:
            found[uid] = id
    return found


def _moved(what: str, before: Deployed, now: Deployed) -> dict[VertexUid, Move]:
    had, has = _places(what, before), _places(what, now)
    former = {
        VertexUid(vertex["uid"]): [VertexUid(old) for old in vertex.get("former_uids", ())]
        for vertex in now.plan.get("vertices") or []
    }
    moves = {}
    for uid, (kind, place) in has.items():
        old = next((had[each] for each in [uid, *former.get(uid, ())] if each in had), None)
        if old is not None and old[0] == kind and old[1] != place:
            moves[uid] = Move(old[1], place)
    return moves


def _places(what: str, deployed: Deployed) -> dict[VertexUid, tuple[str, str]]:
    """The kind and the place of each that has one."""
    found: Mapping[str, object] = deployed.plan.get(what) or {}
    return {
        VertexUid(uid): (str(about.get("kind")), spelled(path, deployed.directory))
        for uid, about in found.items()
        if isinstance(about, dict) and isinstance(path := about.get("path"), str) and path
    }


def spelled(path: str, directory: str) -> str:
    """A path of a job that runs in `directory`, absolute; what only a look at the disk could tell stays as it is."""
    scheme, separator, rest = path.replace("s3a://", "s3://", 1).partition("://")
    if separator and scheme != "file":
        return f"{scheme}://{re.sub('/+', '/', rest).rstrip('/')}"
    local = unquote(urlsplit(path).path) if separator else os.path.expanduser(path)
    return "/" + str(PurePosixPath("/") / directory / local).lstrip("/")
