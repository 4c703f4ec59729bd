"""Which storage root this is: said by one object, made by the first deploy, and looked at by all who work there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate_contract import wire
from headgate_contract.anchored import AnchoredStore
from headgate_contract.errors import CorruptObject, NewerVersion, NotARoot, ObjectMissing, OlderVersion, RootLost
from headgate_contract.paths import HEARTBEATS, ROOT, STREAMS
from headgate_contract.store import Listing, ObjectStore, open_lasting_store

_MAKE = "`headgate deploy` makes a root where there is none"
_ADOPT = (
    "bring the file back as it was; or, if this is the very root, `headgate repair` (without a stream) tells what it "
    "would write there, and `headgate repair --execute` does it (`headgate deploy --adopt-root` as well)"
)
_NEW = "a new identity: whoever still runs here ends by himself, and is started anew"


@dataclass(frozen=True, slots=True)
class RootIdentity:
    """What the root says of itself. It is never changed."""

    id: str
    by: str
    """Who made it."""
    at_ms: int


@dataclass(frozen=True, slots=True)
class RootFault:
    """What is wrong with the file that says which root it is, and what a person may have written in its place."""

    what: str
    becomes: str
    found: bytes | None
    """What is there; None: nothing."""
    own: bytes | None = None
    """What was there before it was damaged, proven by the checksum; None: that is lost."""


class RootStore(AnchoredStore):
    """A storage root: the one of that `id`, or whichever is there, but never a place that is none."""

    def __init__(self, inner: ObjectStore, id: str | None = None) -> None:
        super().__init__(inner, ROOT, self._judge)
        self.id = id
        self._good: bytes | None = None
        """The bytes that were judged last, and good."""

    def _judge(self, data: bytes | None) -> None:
        if data is None or data != self._good:
            _judge(self.inner, self.id, data)
            self._good = data

    def list(self, folder: str) -> Listing:
        return [info for info in super().list(folder) if info.path != ROOT]

    def identity(self) -> RootIdentity:
        """Which root is there now. Raises NotARoot."""
        return _whichever(self.inner, _read(self.inner))


def open_root(url: str, options: Mapping[str, Any] | None = None, id: str | None = None) -> RootStore:
    """The storage root at `url`, which is looked for only when it is used. See open_lasting_store."""
    return RootStore(open_lasting_store(url, options), id)


def root_fault(root: RootStore) -> RootFault | None:
    """What is wrong with the identity of a place that holds streams. Raises NotARoot if it holds none."""
    data = _read(root.inner)
    if data is None and not _holds_streams(root.inner):
        raise _not_a_root(root.inner)
    try:
        _whichever(root.inner, data)
    except NotARoot as error:
        own = wire.mended(data) if data is not None else None
        proven = own is not None and _is_identity(own, root.url)
        becomes = "its own bytes, which the checksum proves" if proven else _NEW
        return RootFault(error.what, becomes, data, own if proven else None)
    return None


def adopt_root(root: RootStore, *, by: str, at_ms: int) -> RootFault | None:
    """Put right what `root_fault` tells of, because a person says that this is the root; what was wrong.

    What lay there is kept beside it. A driver of another identity notices, and ends.
    """
    fault = root_fault(root)
    if fault is None:
        return None
    if fault.found is not None:
        root.inner.replace(f"{ROOT}.damaged", fault.found)
    if fault.own is not None:
        root.inner.replace(ROOT, fault.own)
    elif fault.found is not None:
        root.inner.replace(ROOT, _made(by, at_ms))
    else:
        root.inner.create(ROOT, _made(by, at_ms))
    return fault


def prepare_root(root: RootStore, *, adopt: bool = False) -> None:
    """Make the place of a root that is none yet; it still is none. Raises NotARoot or StorageUnreachable.

    What holds streams and does not say which root it is, is a root only if a person says so: `adopt`.
    """
    data = _read(root.inner)
    if not adopt and (data is not None or _holds_streams(root.inner)):
        _whichever(root.inner, data)
    root.make()
    root.inner.check_writable()


def make_root(root: RootStore, *, by: str, at_ms: int, adopt: bool = False) -> tuple[RootIdentity, bool]:
    """The identity of `root`, and whether this call made it: of all who try at once, one does. See prepare_root."""
    try:
        return root.identity(), False
    except NotARoot:
        prepare_root(root, adopt=adopt)
    if adopt and (_read(root.inner) is not None or _holds_streams(root.inner)):
        adopted = adopt_root(root, by=by, at_ms=at_ms) is not None
        return root.identity(), adopted
    made = root.inner.create(ROOT, _made(by, at_ms))
    return root.identity(), made


def _made(by: str, at_ms: int) -> bytes:
    return wire.encode("root", RootIdentity(uuid.uuid4().hex, by, at_ms), ROOT)


def _read(inner: ObjectStore) -> bytes | None:
    try:
        return inner.read(ROOT)
    except ObjectMissing:
        return None


def _judge(inner: ObjectStore, id: str | None, data: bytes | None) -> None:
    """Raise NotARoot if there is none, and RootLost if it is not the one of that `id`."""
    url = inner.url
    if id is None:
        _whichever(inner, data)
        return
    if data is None:
        raise RootLost(
            f"the root {url} is gone: {ROOT} is not there",
            hint="is its storage mounted? nothing is completed or committed here until it is back",
        )
    try:
        there = _decode(data, url).id
    except CorruptObject as error:
        raise RootLost(error.what, hint=_ADOPT) from error
    if there != id:
        raise RootLost(
            f"the root {url} is not the one that was worked on: it is {there}, that was {id}",
            hint="put back what was there, or start the stream on the root that is",
        )


def _whichever(inner: ObjectStore, data: bytes | None) -> RootIdentity:
    """The identity in `data`, whichever it is. Raises NotARoot: what cannot be read is not believed to be one."""
    if data is None:
        raise _not_a_root(inner)
    try:
        return _decode(data, inner.url)
    except (NewerVersion, OlderVersion):
        raise
    except CorruptObject as error:
        raise NotARoot(f"{error.what}; it says which root this is", hint=_ADOPT) from error


def _is_identity(data: bytes, url: str) -> bool:
    try:
        _decode(data, url)
    except CorruptObject:
        return False
    return True


def _decode(data: bytes, url: str) -> RootIdentity:
    found: RootIdentity = wire.decode("root", data, RootIdentity, f"{url}/{ROOT}", ROOT)
    return found


def _holds_streams(inner: ObjectStore) -> bool:
    return bool(inner.folders(STREAMS) or inner.list(HEARTBEATS))


def _not_a_root(inner: ObjectStore) -> NotARoot:
    if _holds_streams(inner):
        return NotARoot(
            f"{inner.url} holds streams and no {ROOT}, which says which root it is: an older Headgate made it, or the "
            "file was deleted",
            hint=_ADOPT,
        )
    return NotARoot(
        f"{inner.url} is no storage root of Headgate: it has no {ROOT}", hint=f"is it mistyped, or not mounted? {_MAKE}"
    )
