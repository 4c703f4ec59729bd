"""What is said of a failure: the cause in a line, out of what Spark wraps around it."""

from __future__ import annotations

import pytest

from headgate.spark.failures import failure_of, root_cause
from headgate_contract.errors import BatchFailed, RecordFailed, SuppressRestarts

pytestmark = pytest.mark.spark  # it needs no session, but Spark's package

IN_A_STEP = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/worker.py", line 12, in main
    process()
  File "/lib/task.py", line 40, in run
headgate_contract.errors.BatchFailed: step 'counts': no value in the key column 'word'

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/worker.py", line 12, in main
headgate_contract.errors.BatchFailed: step 'counts': no value in the key column 'word'
"""

IN_A_SOURCE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Error from latestOffset for lines: \
Traceback (most recent call last):
  File "/lib/python_streaming_source_runner.py", line 99, in main
    offset = reader.latestOffset()
  File "/headgate/source/line_ranges.py", line 40, in latest
headgate_contract.errors.StreamFailed: source 'lines': 127.0.0.1:1 refused 9 connections
SQLSTATE: XXKST
"""

IN_THE_JVM = """An error occurred while calling o12.collect.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Foo(Foo.scala:1)
Caused by: java.io.IOException: No space left on device
\t... 12 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (IN_A_STEP, "BatchFailed: step 'counts': no value in the key column 'word'"),
        (IN_A_SOURCE, "StreamFailed: source 'lines': 127.0.0.1:1 refused 9 connections"),
        (IN_THE_JVM, "Caused by: java.io.IOException: No space left on device"),
        ("nothing of the kind", "RuntimeError: nothing of the kind"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_is_said_without_what_is_wrapped_around_it(text: str, cause: str) -> None:
    assert root_cause(RuntimeError(text)) == cause


PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/headgate/spark/worker.py", line 12, in step
{kind}: no such thing
"""
READING = """[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/b%20%5B1%5D.json. \
SQLSTATE: KD001
\tat org.apache.spark.Foo(Foo.scala:1)
Caused by: {what}
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PYTHON.format(kind="headgate_contract.errors.RecordFailed"), RecordFailed),
        (PYTHON.format(kind="headgate_contract.errors.SuppressRestarts"), SuppressRestarts),
        (PYTHON.format(kind="headgate_contract.errors.BatchFailed"), BatchFailed),
        (PYTHON.format(kind="headgate.state.errors.ForeignKeyGroup"), BatchFailed),
        (PYTHON.format(kind="ValueError"), RecordFailed),
        (PYTHON.format(kind="pyarrow.lib.ArrowInvalid"), RecordFailed),
        (PYTHON.format(kind="OSError"), BatchFailed),
        (PYTHON.format(kind="psycopg.OperationalError"), BatchFailed),
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", RecordFailed),
        (READING.format(what="java.lang.RuntimeException: file:/b is not a Parquet file."), RecordFailed),
        (READING.format(what="java.io.IOException: FAILED_TO_UNCOMPRESS(5)"), RecordFailed),
        (READING.format(what="java.io.IOException: Input/output error"), BatchFailed),
        (READING.format(what="java.io.FileNotFoundException: File file:/b does not exist"), BatchFailed),
        ("Python worker exited unexpectedly (crashed)", BatchFailed),
        ("java.lang.OutOfMemoryError: Java heap space", BatchFailed),
    ],
)
def test_what_is_in_the_records_is_told_from_what_may_pass(text: str, kind: type[Exception]) -> None:
    failure = failure_of(RuntimeError(text))
    assert type(failure) is kind
    if "reading file" in text:
        assert str(failure).startswith("/in/b [1].json: Caused by: java.")
