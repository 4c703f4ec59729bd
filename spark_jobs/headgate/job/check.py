"""Checks a job before it is deployed: `python -m headgate.job.check JOBFILE --settings JSON`.

Prints one line of JSON, last, on stdout: {"ok": true, "plan": {...}, "warnings": [...]}, or {"ok": false, "error": ...,
"traceback": ...}. What the job file itself prints goes to stderr. Ends with 0 or 2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from headgate.job.loading import load_job, shortened
from headgate.job.plan import LinearPlan, describe, linear_plan
from headgate.source.files import FilesSource
from headgate_contract.errors import HeadgateError
from headgate_contract.settings import Settings


def check(path: Path, settings: Settings) -> dict[str, Any]:
    """The verdict on the job file at `path`."""
    warnings: list[str] = []
    try:
        job, _ = load_job(path)
        plan = linear_plan(job)
        description = describe(plan, settings)
        _check_columns(plan, warnings)
    except HeadgateError as error:
        return {"ok": False, "error": str(error), "traceback": ""}
    except Exception as error:  # noqa: BLE001 - whatever the author's code raises is the verdict
        return {"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": shortened(error, path)}
    _warn_of_paths(plan, warnings)
    if settings["execution.checkpointing.interval"] is None:
        warnings.append(
            "checkpointing is off (execution.checkpointing.interval is not set): after a failure the stream starts "
            "anew, and exactly-once sinks show their output only when a savepoint is taken or the stream is stopped"
        )
    return {"ok": True, "plan": description, "warnings": warnings}


def _check_columns(plan: LinearPlan, warnings: list[str]) -> None:
    if not plan.transforms and plan.keyed is None:
        return
    if os.environ.get("HEADGATE_TEST_ENGINE") == "stand-in":
        warnings.append("the columns were not checked: the stand-in runs without Spark")
        return
    from headgate.spark.columns import check_columns, known_schema

    schema = known_schema(plan.source.source)
    if schema is None:
        warnings.append(f"the columns of source {plan.source.uid} are known only when it runs: nothing was checked")
        return
    check_columns(plan, schema)


def _warn_of_paths(plan: LinearPlan, warnings: list[str]) -> None:
    source = plan.source.source
    if isinstance(source, FilesSource) and "://" not in source.path and not Path(source.path).expanduser().is_dir():
        absolute = Path(source.path).expanduser().absolute()
        warnings.append(f"the source folder {absolute} does not exist yet: create it before the stream is started")


def main() -> int:
    parser = argparse.ArgumentParser(prog="headgate.job.check", description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--settings", default="{}")
    arguments = parser.parse_args()
    verdict_to = os.dup(1)
    os.dup2(2, 1)  # what the job prints, Spark's JVM included
    with contextlib.redirect_stdout(sys.stderr):
        verdict = check(arguments.job.absolute(), Settings(json.loads(arguments.settings)))
    os.write(verdict_to, (json.dumps(verdict) + "\n").encode())
    return 0 if verdict["ok"] else 2


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
