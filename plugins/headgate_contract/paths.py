"""Spells every path on shared storage. Nobody else puts a storage path together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from headgate_contract.errors import BadInput, InvalidName
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber, StreamName, VertexUid

METADATA = "_metadata"
ROOT = "headgate-root.json"
"""Says which root this is."""
HEARTBEATS = "fleet/heartbeats"
STREAMS = "streams"

_HEARTBEAT = re.compile(r"(?P<stream>.+)\.g(?P<generation>[1-9][0-9]*)\.json")
_EVENT = re.compile(r"(?P<slot>[0-9]{10})-(?P<at_ms>[0-9]{15})-[^/]+?(-(?P<what>[a-z]+))?\.json")
_WHAT = re.compile(r"[a-z]+")
_CHECKPOINT = re.compile(rf"(?P<root>.+)/(?P<folder>{STREAMS}/[^/]+/checkpoints/[^/]+)")
_SNAPSHOT = re.compile(r"[^/]+-(?P<id>[1-9][0-9]*)-g(?P<generation>[1-9][0-9]*)")
_SLOT = re.compile(r"(?P<number>[0-9]{8}|[1-9][0-9]{8,})\.json")


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """All the paths of one stream, relative to the storage root."""

    stream: StreamName

    @property
    def root(self) -> str:
        return f"{STREAMS}/{self.stream}"

    def heartbeat(self, generation: Generation) -> str:
        return f"{HEARTBEATS}/{self.stream}.g{generation}.json"

    @property
    def readable(self) -> str:
        return f"{self.root}/stream.json"

    @property
    def slots(self) -> str:
        return f"{self.root}/slots"

    @property
    def decisions(self) -> str:
        return f"{self.root}/decisions"

    @property
    def summaries(self) -> str:
        return f"{self.root}/summaries"

    @property
    def requests(self) -> str:
        return f"{self.root}/requests"

    @property
    def answers(self) -> str:
        return f"{self.root}/answers"

    def request(self, request: RequestId) -> str:
        return f"{self.requests}/{request}.json"

    def answer(self, request: RequestId) -> str:
        return f"{self.answers}/{request}.json"

    @property
    def checkpoints(self) -> str:
        return f"{self.root}/checkpoints"

    def checkpoint(self, checkpoint: CheckpointId, generation: Generation) -> str:
        return f"{self.checkpoints}/chk-{checkpoint}-g{generation}"

    @property
    def shared(self) -> str:
        return f"{self.root}/shared"

    def shared_file(self, name: str) -> str:
        return f"{self.shared}/{name}"

    @property
    def savepoints(self) -> str:
        return f"{self.root}/savepoints"

    def savepoint(self, name: SavepointName, checkpoint: CheckpointId, generation: Generation) -> str:
        """Each attempt has a folder of its own: whoever tries again under one name never writes where another did."""
        return f"{self.savepoints}/{name}-{checkpoint}-g{generation}"

    def attempt_of(self, folder: str) -> tuple[CheckpointId, Generation] | None:
        """The attempt at a checkpoint or savepoint that has `folder`, or None when none of this stream can have it."""
        name = folder.removeprefix(f"{self.savepoints}/").removeprefix(f"{self.checkpoints}/")
        match = _SNAPSHOT.fullmatch(name)
        return (CheckpointId(int(match["id"])), Generation(int(match["generation"]))) if match else None

    def savepoint_elsewhere(self, name: SavepointName, checkpoint: CheckpointId, generation: Generation) -> str:
        """An attempt's folder in a directory that other streams may use as well."""
        return f"{self.stream}-{name}-{checkpoint}-g{generation}"

    def source_log(self, uid: VertexUid) -> str:
        """Where a source keeps what its server will not send again."""
        return f"{self.root}/logs/{uid}"

    def repaired(self, repair: str) -> str:
        """Where a repair puts aside what it writes something else in the place of."""
        return f"{self.root}/repaired/{repair}"

    @property
    def history(self) -> str:
        return f"{self.root}/history"

    def event(self, slot: int, at_ms: int, nonce: str, what: str = "") -> str:
        """Sorted by name, events are in the order of the log; those between two slots in that of their clocks.

        `what` may be part of the name, so that a reader finds what it looks for without reading everything.
        """
        said = f"-{what}" if _WHAT.fullmatch(what) else ""
        return f"{self.history}/{slot:010d}-{at_ms:015d}-{nonce}{said}.json"


def directory_url(text: str) -> str:
    """The URL of a directory that a person has written: a URL, or an absolute path. Raises BadInput."""
    plain = text.strip().rstrip("/")
    if plain.startswith("/"):
        plain = path_url(plain)
    if "://" not in plain or plain.endswith(":/"):
        raise BadInput(f"{text!r} is no directory's URL", hint="write it like s3://bucket/folder or /mnt/folder")
    return checked_url(plain)


def path_url(path: str) -> str:
    """The URL of an absolute path, as short as it was but for a '%', which a URL would decode."""
    return f"file://{path.replace('%', '%25')}"


def checked_url(url: str) -> str:
    """`url`, if a store can be there. It is stored and shown, so one that carries credentials is refused, masked."""
    plain = url.replace("s3a://", "s3://", 1)
    scheme, _, rest = plain.partition("://")
    authority = rest.partition("/")[0]
    if "@" in authority or ":" in authority:  # a secret may have a slash in it: the @ comes later then
        raise BadInput(
            f"the place '{scheme}://...' carries credentials or a port",
            hint="give credentials and the endpoint as the root's are given, and write s3://bucket/folder",
        )
    if not url.isprintable():  # some readers of URLs leave out a tab or a line's end, and so read another place
        raise BadInput(f"{url!r} has a character that cannot be seen", hint="choose a folder without it")
    if scheme == "memory":
        raise BadInput(f"{url!r} is in one process's memory, and gone with it", hint="use file:// or s3://")
    if scheme not in ("file", "s3"):
        raise BadInput(f"{url!r} is on {scheme!r}, where nothing can be stored", hint="use file:// or s3://")
    if scheme == "file" and authority not in ("", "localhost"):
        raise BadInput(f"{url!r} is no local folder", hint="write file:///folder with three slashes, or /folder")
    if scheme == "file" and ("#" in rest or "?" in rest):
        raise BadInput(
            f"{url!r} has a '#' or '?', which ends the path of a file's URL", hint="choose a folder without them"
        )
    return plain


def snapshot_at(url: str) -> tuple[str, str]:
    """The URL of the folder that a snapshot's `url` is in, and its folder below that.

    A checkpoint's files are named from the root of its stream: that is then the folder. A folder is a name as the store
    opens it: what a file's URL has encoded is decoded here, and nowhere again.
    """
    plain = url.rstrip("/").removesuffix(f"/{METADATA}")
    checkpoint = _CHECKPOINT.fullmatch(plain)
    location, _, folder = (checkpoint["root"], "", checkpoint["folder"]) if checkpoint else plain.rpartition("/")
    if not folder or not location or location.endswith((":/", "://")):
        raise BadInput(f"{url!r} is no snapshot's folder", hint="write it like file:///backup/before-3-g1")
    return location, _decoded(folder, url) if plain.startswith("file:") else folder


def _decoded(folder: str, url: str) -> str:
    """The names of the folders that the end of a file's URL means. Raises BadInput for what is not a name each."""
    names = [unquote(part) for part in folder.split("/")]
    if any(name in (".", "..") or "/" in name or "\0" in name for name in names):
        raise BadInput(f"{url!r} does not end with a folder's name", hint="write a '%' of the name itself as '%25'")
    return "/".join(names)


def numbered(folder: str, number: SlotNumber) -> str:
    """The path of a log's entry: eight digits, and more when there are more."""
    return f"{folder}/{number:08d}.json"


def number_of(path: str) -> SlotNumber | None:
    """The number of the log entry at `path`, or None when the file is no entry."""
    match = _SLOT.fullmatch(path.rsplit("/", 1)[-1])
    return SlotNumber(int(match["number"])) if match and int(match["number"]) else None


def moment_of(path: str) -> int | None:
    """The moment, in milliseconds, that the name of the event at `path` tells, or None."""
    match = _EVENT.fullmatch(path.rsplit("/", 1)[-1])
    return int(match["at_ms"]) if match else None


def slot_told_by(path: str) -> int | None:
    """The slot of which the name of the event at `path` tells, or None when the file is no event."""
    match = _EVENT.fullmatch(path.rsplit("/", 1)[-1])
    return int(match["slot"]) if match else None


def what_of(path: str) -> str | None:
    """What the name of the event at `path` says that happened, or None when it does not say."""
    match = _EVENT.fullmatch(path.rsplit("/", 1)[-1])
    return match["what"] if match else None


def heartbeat_of(path: str) -> tuple[StreamName, Generation] | None:
    """Whose heartbeat lies at `path`, or None when the file is none."""
    folder, _, name = path.rpartition("/")
    match = _HEARTBEAT.fullmatch(name)
    if match is None or folder != HEARTBEATS:
        return None
    stream = _stream(match["stream"])
    return (stream, Generation(int(match["generation"]))) if stream is not None else None


def stream_of(path: str) -> StreamName | None:
    """The stream that `path` belongs to, or None."""
    parts = path.split("/")
    return _stream(parts[1]) if len(parts) > 2 and parts[0] == STREAMS else None


def _stream(name: str) -> StreamName | None:
    """`name` as a stream's, or None when Headgate cannot have written it: a stray file must not hide the others."""
    try:
        return StreamName(name)
    except InvalidName:
        return None
