"""What is said of a failure: the cause in a line, out of what Spark wraps around it."""

from __future__ import annotations

import pytest

from headgate.spark.chain import root_cause

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
