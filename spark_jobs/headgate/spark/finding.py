"""Finds the record that has failed a micro-batch, by reading it once more: that one, and no other that is bad too."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.source.place import shown
from headgate.spark.chain import column_of
from headgate.spark.readers import Reader
from headgate.step.task import WITHOUT_KEY

_NOT_PARSED = "MALFORMED"


def find_failed(
    session: SparkSession,
    reader: Reader,
    origin: tuple[str, ...],
    keyed: tuple[tuple[str, ...], Callable[[], DataFrame | None]] | None,
    error: BaseException,
) -> str:
    """The first record of this origin that fails a step so, for people; empty if that is not one that can be found.

    `keyed`: the key's columns, and the micro-batch as the step takes it, if it can be read once more.
    """
    told = str(error)
    if WITHOUT_KEY in told:
        frame = keyed[1]() if keyed is not None else None
        return find_null_key(frame, keyed[0]) if keyed is not None and frame is not None else ""
    named = tuple(file for file in origin if f"{shown(file)}: " in told)  # Spark says which file it was reading
    if not named and _NOT_PARSED not in told:
        return ""
    return reader.find_malformed(session, named or origin)


def find_null_key(frame: DataFrame, keys: tuple[str, ...]) -> str:
    """The file of the first record without a key, of a frame as a step takes it, if it comes from a file."""
    for key in keys:
        found = frame.where(column_of(key).isNull()).select(F.input_file_name()).take(1)
        if found and found[0][0]:
            return f"the first without a key in {shown(found[0][0])}"
    return ""
