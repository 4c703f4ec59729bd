"""Decides where a stream's snapshots may be written and restored from: below the root, and where its settings say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from headgate_contract.errors import BadConfiguration, BadInput
from headgate_contract.settings import Settings
from headgate_contract.store import local_folder

SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"
ALLOWED_DIRS = "headgate.snapshot.allowed-dirs"


@dataclass(frozen=True, slots=True)
class Places:
    """The directories that a request or a person may name, as URLs; what lies below one may be named too.

    Links are followed, so that a name which leads elsewhere is judged by where it leads.
    """

    root: str
    usual: str | None = None
    """Where savepoints go of which nobody says it; None: below the root."""
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, root: str, settings: Settings) -> Places:
        return cls(root, settings[SAVEPOINT_DIR], settings[ALLOWED_DIRS] or ())

    def allow(self, url: str, folder: str = "") -> bool:
        """Does `folder` of the store at `url` lie in one of them? Raises BadInput for what cannot be one place."""
        place = _parts(url, folder)
        return any(place[: len(allowed)] == allowed for allowed in map(_parts, self))

    def __iter__(self) -> Iterator[str]:
        yield self.root
        if self.usual is not None:
            yield self.usual
        yield from self.named

    def check_target(self, url: str) -> None:
        """Raise BadInput unless a savepoint may be written into the directory `url`."""
        if not self.allow(url):
            raise BadInput(f"a savepoint may not be written to {url}", hint=self._who_allows())

    def check_snapshot(self, location: str, folder: str) -> None:
        """Raise BadInput unless the snapshot in `folder` of `location` may be restored.

        A checkpoint's files lie beside its folder, below the root that is its location.
        """
        is_checkpoint = "/" in folder
        is_beside_allowed = not is_checkpoint or self.allow(location)
        if not (is_beside_allowed and self.allow(location, folder)):
            raise BadInput(
                f"a snapshot may not be restored from {location}{f'/{folder}' if is_beside_allowed else ''}",
                hint=f"{self._who_allows()}; `headgate restore --allow-place` allows one for once",
            )

    def _who_allows(self) -> str:
        return f"the stream's setting {ALLOWED_DIRS} allows more places; as it was deployed these: {', '.join(self)}"


def _parts(url: str, folder: str = "") -> tuple[str, ...]:
    """What makes two places the same: scheme, bucket or root of the file system, and each folder on the way.

    It is read as a store reads it that is opened there: `url` is a URL, and `folder` a name as it is, never decoded.
    """
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file":
        try:
            path = f"{local_folder(url)}/{folder}"
        except BadConfiguration:
            path = "\0"
        if "\0" in path:
            raise BadInput(f"{url!r} is no local folder", hint="write file:///folder")
        return ("file", *(part for part in os.path.realpath(path).split("/") if part))
    parts = [*rest.rstrip("/").split("/"), *(folder.split("/") if folder else ())]
    if any(unquote(part) in (".", "..") for part in parts):
        raise BadInput(f"{url!r} has a '.' or '..' on its way", hint="write the place as it is")
    return ("s3" if scheme.lower() == "s3a" else scheme.lower(), *parts)
