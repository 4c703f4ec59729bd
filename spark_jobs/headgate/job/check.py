"""Checks a job before it is deployed: `python -m headgate.job.check JOBFILE --settings JSON [--directory DIR]`.

Prints one line of JSON on stdout: {"ok": true, "plan": {...}, "warnings": [...]}, or {"ok": false, "error": ...,
"traceback": ...}. What the job file itself prints goes to stderr. Ends with 0 or 2. With --graph the plan is what the
job's graph is cut into, and nothing else is checked; with --sinks it is what the sinks hold of a stream now (--whole:
whether all of their own records are whole, too). With `--settings -` the JSON is read from stdin: everybody on the host
can read a command line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate.job.graph_description import describe_graph
from headgate.job.job import Job
from headgate.job.loading import author_lines, find_neighbours_of, load_job
from headgate.job.neighbours import check_neighbours
from headgate.job.plan import describe
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.source.files import FilesSource
from headgate.spark.tuning import spark_settings
from headgate_contract.codec import to_plain
from headgate_contract.credentials import masked
from headgate_contract.durations import Duration
from headgate_contract.errors import BadConfiguration, HeadgateError
from headgate_contract.ids import Generation, StreamName
from headgate_contract.settings import Settings

Verdict = dict[str, Any]


def check(
    path: Path,
    settings: str = "{}",
    directory: Path | None = None,
    *,
    graph: bool = False,
    sinks: str | None = None,
    whole: bool = False,
) -> Verdict:
    """The verdict on the job file at `path`, with settings as JSON, run in `directory`. No job makes it raise."""
    path = path.absolute()
    try:
        if directory is not None:
            os.chdir(directory)
        if sinks is not None:
            return _sinks(path, StreamName(sinks), whole)
        return (_graph if graph else _check)(path, _read_settings(settings))
    except HeadgateError as error:
        lines = author_lines(error.__cause__ or error, path)
        told = bool(lines) and lines[-1] in str(error)
        return _refusal(str(error), () if told else lines)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the author's code raises is the verdict
        return _refusal(f"{type(error).__name__}: {error}", author_lines(error, path))


def _refusal(error: str, lines: Sequence[str]) -> Verdict:
    """Goes into the history, too: of the author's lines, what is secret in them is left out."""
    return {"ok": False, "error": masked(error), "traceback": masked("\n".join(lines))}


def _read_settings(text: str) -> Settings:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadConfiguration(f"the settings {text!r} are no JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadConfiguration(f"the settings {text!r} are no JSON object")
    return Settings(given)


def _load(path: Path) -> Job:
    find_neighbours_of(path)
    check_neighbours(path)  # before it runs: what it would say of a module that is another one leads astray
    return load_job(path)[0]


def _graph(path: Path, settings: Settings) -> Verdict:
    job = _load(path)
    return {"ok": True, "plan": describe_graph(graph_plan(job), settings), "warnings": []}


def _sinks(path: Path, stream: StreamName, whole: bool) -> Verdict:
    """What the job's sinks hold of `stream`; one that cannot be looked at hides no other."""
    found: dict[str, Any] = {}
    for end in graph_plan(_load(path)).sinks:
        uid = end.vertex.storage_uid
        try:
            held = end.vertex.sink.committer(stream, uid, Generation(1), "").holdings(whole=whole)
        except Exception as error:  # noqa: BLE001 - whatever an author's sink raises is told of it
            found[uid] = {"error": masked(f"{type(error).__name__}: {error}")}
        else:
            found[uid] = to_plain(held) if held is not None else {}
    return {"ok": True, "plan": {"sinks": found}, "warnings": []}


def _check(path: Path, settings: Settings) -> Verdict:
    warnings: list[str] = []
    job = _load(path)
    plan = graph_plan(job)
    description = describe(plan, settings)
    spark_settings(settings)
    _check_columns(plan, settings, warnings)
    _warn_of_paths(plan, warnings)
    _warn_of_idleness(plan, settings, warnings)
    if settings["execution.checkpointing.interval"] is None:
        warnings.append(
            "checkpointing is off (execution.checkpointing.interval is not set): after a failure the stream starts "
            "anew, and exactly-once sinks show their output only when a savepoint is taken or the stream is stopped"
        )
    return {"ok": True, "plan": description, "warnings": warnings}


def _check_columns(plan: GraphPlan, settings: Settings, warnings: list[str]) -> None:
    readers = [(source, *plan.reader(source.uid)) for source in plan.sources]
    declared = any(isinstance(each.source, FilesSource) and each.source.schema for each, _, _ in readers)
    if plan.is_linear and not declared and not any(way.transforms or way.time or task.step for _, task, way in readers):
        return
    if os.environ.get("HEADGATE_TEST_ENGINE") == "stand-in":
        warnings.append("the columns were not checked: the stand-in runs without Spark")
        return
    from headgate.spark.columns import check_columns, known_schema

    schemas = {}
    for vertex, _, _ in readers:
        schema = known_schema(vertex.source)
        if schema is None:
            warnings.append(
                f"the columns of source {vertex.uid} are known only when it runs: what reads it was not checked"
            )
        else:
            schemas[vertex.uid] = schema
    if schemas or any(task.step is not None and task.channels for task in plan.tasks):
        check_columns(plan, schemas, settings)


def _warn_of_paths(plan: GraphPlan, warnings: list[str]) -> None:
    for source in (vertex.source for vertex in plan.sources):
        if isinstance(source, FilesSource) and "://" not in source.path and not Path(source.path).expanduser().is_dir():
            absolute = Path(source.path).expanduser().absolute()
            warnings.append(f"the source folder {absolute} does not exist yet: create it before the stream is started")


def _warn_of_idleness(plan: GraphPlan, settings: Settings, warnings: list[str]) -> None:
    pace = settings["headgate.trigger-interval"]
    for source in plan.sources:
        time = plan.reader(source.uid)[1].time
        if time is not None and time.idle_after_ms is not None and time.idle_after_ms <= pace:
            warnings.append(
                f"source {source.uid} counts as idle after {Duration(time.idle_after_ms)}, and hands over every "
                f"{pace} at most (headgate.trigger-interval): it would be idle between two micro-batches"
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="headgate.job.check", description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--sinks", metavar="STREAM")
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    settings = sys.stdin.read() if arguments.settings == "-" else arguments.settings
    verdict_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the job prints, Spark's JVM included
    with contextlib.redirect_stdout(sys.stderr):
        verdict = check(
            arguments.job,
            settings,
            arguments.directory,
            graph=arguments.graph,
            sinks=arguments.sinks,
            whole=arguments.whole,
        )
    with verdict_to:
        verdict_to.write(json.dumps(verdict, default=str) + "\n")
    return 0 if verdict["ok"] else 2


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
