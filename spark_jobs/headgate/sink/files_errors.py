"""What the file sink says when it cannot go on: which group or file, whose it is, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.sink.files_layout import PUBLISHED, Manifest, SinkFile, SinkLayout
from headgate_contract.errors import Fenced, SinkDamaged, SinkFailed
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.store import ObjectStore


def fenced(layout: SinkLayout, newer: Generation, generation: Generation, what: str) -> Fenced:
    return Fenced(
        f"generation {generation} of stream {layout.stream} may not write to sink {layout.sink}: "
        f"generation {newer} {what}",
        hint=f"if that one worked on another copy of the root, `headgate repair {layout.stream}`; if this is a new "
        f"stream of that name, give the sink another path, or remove {layout.folder} below it together with the files "
        "that the former stream published",
    )


def phantom(store: ObjectStore, layout: SinkLayout, what: str, generation: int) -> SinkFailed:
    """Of a group that somebody else published under its id, of whom this log does not tell."""
    return SinkFailed(
        f"{store.url}/{what} generation {generation}, which worked on another copy of the root, or was left out when "
        "this one was put back",
        hint=f"`headgate repair {layout.stream}` tells what it has published, and a way on",
    )


def foreign(store: ObjectStore, layout: SinkLayout, what: str, generation: int) -> SinkFailed:
    return SinkFailed(
        f"{store.url}/{what} generation {generation} of another history of stream {layout.stream}",
        hint=f"give the sink another path, or remove {layout.folder} below it together with the files that the former "
        "stream published",
    )


def missing(store: ObjectStore, layout: SinkLayout, manifest: Manifest, files: Sequence[SinkFile]) -> SinkFailed:
    visible = layout.place(manifest.group, files[0], PUBLISHED)
    return SinkFailed(
        f"sink {layout.sink} of stream {layout.stream} cannot publish group {manifest.group}: "
        f"{len(files)} of its {len(manifest.files)} files {'is' if len(files) == 1 else 'are'} missing on "
        f"{store.url} (first: {files[0].staged}, to be {visible}, {files[0].rows} rows)",
        hint=way_out(layout, manifest.group),
    )


def damaged(layout: SinkLayout, what: str) -> SinkDamaged:
    """Of a record of the sink's own; `what` names it."""
    return SinkDamaged(
        f"sink {layout.sink} of stream {layout.stream} cannot go on: {what}",
        hint=f"`headgate repair {layout.stream}` tells a way out; or put the file's own bytes back",
    )


def lost(store: ObjectStore, layout: SinkLayout, group: CheckpointId) -> SinkDamaged:
    """Of a group that the log calls published."""
    return SinkDamaged(
        f"the target {store.url} of sink {layout.sink} of stream {layout.stream} has no group {group}, which was "
        f"published there: {layout.manifest(group)} is gone",
        hint="was an older copy put in its place? bring back what was there; else "
        f"`headgate repair {layout.stream}` says how its records are published again",
    )


def way_out(layout: SinkLayout, group: CheckpointId) -> str:
    return (
        f"bring it back (did the sink's path change?), or restore a snapshot older than {group}, whose records are "
        f"then replayed: `headgate snapshots {layout.stream}` lists them"
    )
