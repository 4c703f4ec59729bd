"""Files that appear in a folder, each read once: text, JSON lines, CSV, Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from headgate.source.base import Source
from headgate_contract.errors import JobInvalid

FORMATS = ("text", "json", "csv", "parquet")


@dataclass(frozen=True)
class FilesSource(Source):
    """Made by `files`."""

    kind: ClassVar[str] = "files"
    path: str
    format: str
    schema: str | None
    max_files_per_trigger: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantee(self) -> str:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "format": self.format, "schema": self.schema}


def files(
    path: str | Path,
    *,
    format: str = "text",
    schema: str | None = None,
    max_files_per_trigger: int = 100,
    options: Mapping[str, str] | None = None,
) -> FilesSource:
    """Read the files that appear in the folder `path`, oldest first, at most `max_files_per_trigger` in a micro-batch.

    A file must appear whole (write it elsewhere, then rename), keep its content, and stay while a retained snapshot
    may replay it. `schema` is a DDL string ("id BIGINT, name STRING"); text needs none. A relative path is seen from
    the folder that the job was deployed in.
    """
    path = str(path)
    if format not in FORMATS:
        raise JobInvalid(f"files({path!r}): the format {format!r} is not known", hint=f"known are {', '.join(FORMATS)}")
    if format != "text" and not schema:
        raise JobInvalid(
            f"files({path!r}, format={format!r}) needs a schema", hint='like schema="id BIGINT, name STRING"'
        )
    if format == "text" and schema:
        raise JobInvalid(f"files({path!r}): text has the one column 'value STRING' and takes no schema")
    if (
        isinstance(max_files_per_trigger, bool)
        or not isinstance(max_files_per_trigger, int)
        or max_files_per_trigger < 1
    ):
        raise JobInvalid(f"files({path!r}): max_files_per_trigger is {max_files_per_trigger!r}, it must be 1 or more")
    return FilesSource(path, format, schema, max_files_per_trigger, dict(options or {}))
