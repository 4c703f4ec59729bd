"""Files that appear in a folder, each read once: text, JSON lines, CSV, Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from headgate.source.base import Source
from headgate_contract.credentials import carries_credentials, masked
from headgate_contract.errors import JobInvalid

FORMATS = ("text", "json", "csv", "parquet")
BYTES_PER_TRIGGER = 128 << 20

_REFUSED = {
    "cleanSource": "it removes a file that no checkpoint has behind it yet; remove files yourself, when every retained "
    "snapshot has them behind it",
    "sourceArchiveDir": "it belongs to cleanSource, which is refused",
    "ignoreMissingFiles": "the records of a file that is gone would be lost silently; keep files while they are needed",
    "ignoreCorruptFiles": "the records of a damaged file would be lost silently; mend the file, or move it away",
    "fileNameOnly": "a second file of the same name in another folder would never be read; leave it out",
    "latestFirst": "files are read oldest first, so that a replay reads them in the same order; leave it out",
    "maxFileAge": "files are read however old they are; leave it out",
    "maxFilesPerTrigger": "say files(max_files_per_trigger=...)",
    "maxBytesPerTrigger": "say files(max_bytes_per_trigger=...)",
    "path": "the folder is the first argument of files(...)",
}
"""Spark's options that lose or repeat records or undo what the source itself sets, and what to do instead."""


@dataclass(frozen=True)
class FilesSource(Source):
    """Made by `files`."""

    kind: ClassVar[str] = "files"
    path: str
    format: str
    schema: str | None
    max_files_per_trigger: int | None
    max_bytes_per_trigger: int | None
    """Exactly one of the two is set: Spark takes no more."""
    options: Mapping[str, str] = field(default_factory=dict)
    bounded: bool = False

    @property
    def guarantee(self) -> str:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        told = {"kind": self.kind, "path": self.path, "format": self.format, "schema": self.schema}
        return {**told, "bounded": True} if self.bounded else told


def files(
    path: str | Path,
    *,
    format: str = "text",
    schema: str | None = None,
    max_files_per_trigger: int | None = None,
    max_bytes_per_trigger: int | None = None,
    options: Mapping[str, str] | None = None,
    bounded: bool = False,
) -> FilesSource:
    """Read the files that appear in the folder `path`, oldest first.

    A micro-batch takes at most `max_files_per_trigger` files, or files of at most `max_bytes_per_trigger` together, but
    one file at least; say one of the two, or neither for 128 MiB.
    A file must appear whole (write it elsewhere, then rename), keep its content, and stay while a retained snapshot
    may replay it. Its name may be any that is UTF-8, and so may the folder's. Never read, and told of in the log
    and the history, is what is hidden (`.name`, `_name`, `name._COPYING_`), what lies in a subfolder, what is
    called by bytes that are no UTF-8, and what is no file of records: named pipes, sockets, devices. Subfolders
    `name=value` are read, and give the column `name`; then only these are. A link is a file of its own. `schema` is
    a DDL string ("id BIGINT, name STRING"); text needs none. A relative path is seen from the folder that the job
    was deployed in.
    With `bounded=True` the source ends when it has read what is in the folder when a life of the stream begins. It
    holds up no barrier and no event time from then on, and stays ended in what is restored from a later snapshot. When
    all sources have ended the operators finish, and the stream stops by itself with a last checkpoint.
    headgate.trigger-interval does not pace it. The folder has to be there at every start, also when all was read.
    `options` go to Spark's reader, except those that would lose records. A JSON or CSV line that does not fit the
    schema fails the stream; with options={"mode": "PERMISSIVE"} it becomes nulls instead.
    """
    path = str(path)
    if carries_credentials(path):
        raise JobInvalid(
            f"files({masked(path)!r}): the URL carries credentials, and a job's plan is kept and shown in clear",
            hint="give them in the environment (AWS_*), or in a file that only the driver's user can read",
        )
    if format not in FORMATS:
        raise JobInvalid(f"files({path!r}): the format {format!r} is not known", hint=f"known are {', '.join(FORMATS)}")
    if format != "text" and not schema:
        raise JobInvalid(
            f"files({path!r}, format={format!r}) needs a schema", hint='like schema="id BIGINT, name STRING"'
        )
    if format == "text" and schema:
        raise JobInvalid(f"files({path!r}): text has the one column 'value STRING' and takes no schema")
    for name, limit in (("files", max_files_per_trigger), ("bytes", max_bytes_per_trigger)):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise JobInvalid(f"files({path!r}): max_{name}_per_trigger is {limit!r}, it must be 1 or more")
    if max_files_per_trigger is not None and max_bytes_per_trigger is not None:
        raise JobInvalid(
            f"files({path!r}) has both max_files_per_trigger and max_bytes_per_trigger", hint="Spark takes one of them"
        )
    if max_files_per_trigger is None and max_bytes_per_trigger is None:
        max_bytes_per_trigger = BYTES_PER_TRIGGER
    if not isinstance(bounded, bool):
        raise JobInvalid(f"files({path!r}): bounded is {bounded!r}, it is True or False")
    given = dict(options or {})
    _refuse_losing(path, given)
    if format in ("json", "csv") and "mode" not in map(str.lower, given):
        given["mode"] = "FAILFAST"  # Spark's own default makes a row of nulls of a line that it cannot read
    return FilesSource(path, format, schema, max_files_per_trigger, max_bytes_per_trigger, given, bounded)


def _refuse_losing(path: str, options: Mapping[str, str]) -> None:
    for refused, why in _REFUSED.items():
        if refused.lower() in map(str.lower, options):  # as Spark reads them
            raise JobInvalid(f"files({path!r}): the option {refused!r} is refused", hint=why)
