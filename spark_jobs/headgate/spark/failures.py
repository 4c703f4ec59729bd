"""What has failed, out of what Spark wraps around it, and whether the records are to blame."""

from __future__ import annotations

import re

from headgate.source.place import shown
from headgate.step.blame import passes_by_name
from headgate_contract.errors import BatchFailed, RecordFailed, StreamFailed, SuppressRestarts

_DIED = "Python worker exited unexpectedly"
_READING = re.compile(r"while reading file (\S+?)\.(?:\s|$)")
_OF_THE_DATA = re.compile(
    r"SQLSTATE: 22|MALFORMED|is not a Parquet file|SchemaColumnConvertNotSupported|FAILED_TO_UNCOMPRESS|"
    r"could not decode|ParquetDecoding|MalformedInput|[Cc]orrupt"
)
"""What Spark and its readers say where they cannot read a value; 22 is SQL's class of data exceptions."""
_OURS = {each.__name__: each for each in (SuppressRestarts, RecordFailed)}


_OTHER_COLUMNS = re.compile("CONFLICTING_(PARTITION_COLUMN_NAMES|DIRECTORY_STRUCTURES)")
"""What Spark says of subfolders name=value that do not all name the same columns."""
_FOLDER = re.compile(r"^(?:file:)?(/\S.*?)(?: SQLSTATE: \w+)?$")


def is_of_the_folder(error: BaseException) -> bool:
    """Whether a source's folder cannot be read as it stands now, until somebody changes it."""
    return _OTHER_COLUMNS.search(str(error)) is not None


def failure_of(error: BaseException) -> StreamFailed:
    """The failure of a Spark job as ours: RecordFailed if the same records will fail again."""
    text, what = str(error), root_cause(error)
    raised = _raised_in_python(_lines(text))
    kind = raised[0].rsplit(".", 1)[-1] if raised is not None else ""
    if kind in _OURS:
        return _OURS[kind](what.partition(": ")[2])
    reading = _READING.search(text)
    if reading is not None:
        what = f"{shown(reading[1])}: {what}"
    if raised is not None:
        of_the_data = not raised[0].startswith("headgate") and not passes_by_name(kind)
    else:
        of_the_data = _DIED not in text and _OF_THE_DATA.search(text) is not None
    return RecordFailed(what) if of_the_data else BatchFailed(what)


def root_cause(error: BaseException) -> str:
    """What went wrong in a Python worker or in the JVM, in a line, without Spark's wrapping."""
    text = str(error)
    lines = _lines(text)
    raised = _raised_in_python(lines)
    if raised is not None:
        return f"{raised[0].rsplit('.', 1)[-1]}: {raised[1]}"
    if _DIED in text:
        return "a Python worker exited unexpectedly: it crashed, or was killed, for its memory perhaps"
    if is_of_the_folder(error):
        folders = [shown(found[1]) for line in lines if (found := _FOLDER.match(line))]
        told = "subfolders that do not all name the same columns, of which Spark reads all or none"
        return f"{told}: {', '.join(folders)}; move those away that should not be read"
    caused = [line for line in lines if line.startswith("Caused by:")]
    return (caused[-1] if caused else first_line(error))[:2000]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _raised_in_python(lines: list[str]) -> tuple[str, str] | None:
    """The full name of the class of what was raised in Python, and what it says."""
    marks = [index for index, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[marks[-1] + 1 :] if marks else ():
        kind, colon, rest = line.partition(":")
        if colon and not line.startswith("File ") and kind.replace(".", "").replace("_", "").isalnum():
            return kind, rest.strip()
    return None


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
