"""The check that deploy runs: one line of JSON, whatever the job does; real columns on a real, small Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.job.check import Verdict, check

REPO = Path(__file__).resolve().parents[3]
STATELESS = """
import headgate
print("chatter of the job")
job = headgate.Job("copy")
job.source("lines", headgate.sources.files("in")).sink("out", headgate.sinks.discard())
"""
HEAD = """
import headgate
import pyarrow as pa
from pyspark.sql import functions as F
job = headgate.Job("j")
rows = job.source("rows", headgate.sources.files("in", format="json", schema="id BIGINT, who STRING, at TIMESTAMP"))
"""
OTHER = 'job.source("other", headgate.sources.files("in", format="json", schema="id BIGINT, who STRING, at TIMESTAMP"))'


@pytest.fixture(autouse=True)
def untouched_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A check runs in a process of its own, which it changes; here it must not."""
    monkeypatch.chdir(Path.cwd())
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith("headgate_job_")]:
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "my_job.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


THREE_SINKS = """
import headgate

job = headgate.Job("three")
numbers = job.source("numbers", headgate.sources.rate(1))
numbers.sink("out", headgate.sinks.files("out"))
nowhere = {"endpoint_url": "http://127.0.0.1:1"}
numbers.sink("far", headgate.sinks.files("s3://no-such-bucket/x", storage_options=nowhere))
numbers.sink("seen", headgate.sinks.console())
"""


def run(*arguments: str, cwd: Path) -> tuple[int, list[str], str]:
    """The check as deploy runs it: exit code, lines on stdout, stderr."""
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'plugins'}{os.pathsep}{REPO / 'spark_jobs'}"}
    done = subprocess.run(
        [sys.executable, "-m", "headgate.job.check", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_good_job_gives_its_plan_on_one_line_and_its_own_chatter_goes_to_stderr(tmp_path: Path) -> None:
    write(tmp_path, STATELESS)
    settings = json.dumps({"execution.checkpointing.interval": "10 s"})
    code, lines, errors = run("my_job.py", "--settings", settings, cwd=tmp_path)
    assert (code, len(lines)) == (0, 1)
    verdict = json.loads(lines[0])
    assert verdict["ok"] is True
    assert verdict["plan"]["job"] == "copy"
    assert verdict["plan"]["guarantee"] == {"level": "exactly-once", "weakest": ""}
    assert verdict["warnings"] == [
        f"the source folder {tmp_path}/in does not exist yet: create it before the stream is started"
    ]
    assert "chatter of the job" in errors


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.write(1, b'raw')\nraise SystemExit(0)\n",
        "import threading\nthreading.Thread(target=print).start()\n1/0",
    ],
    ids=["a job that exits", "a job with a thread"],
)
def test_a_bad_job_gives_its_verdict_and_exit_code_2(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    code, lines, _ = run("my_job.py", cwd=tmp_path)
    assert (code, len(lines)) == (2, 1)
    assert json.loads(lines[0])["ok"] is False


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{", "the settings '{' are no JSON: "),
        ("[1]", r"the settings '\[1\]' are no JSON object"),
        (
            '{"spark.master": "spark://host:7077"}',
            "spark.master is 'spark://host:7077': a driver",
        ),
        ('{"spark.master": "local[4,3]"}', "spark.master is 'local[4,3]'"),
        (
            '{"spark.master": "local-cluster[1,1,600]", "spark.authenticate": false}',
            "spark.authenticate is 'false': whoever is on the host could run code",
        ),
        ('{"spark.sql.files.ignoreCorruptFiles": true}', "spark.sql.files.ignoreCorruptFiles is refused"),
        ('{"spark.sql.files.ignoreMissingFiles": "TRUE"}', "spark.sql.files.ignoreMissingFiles is refused"),
        ('{"state.backnd.type": "hashmap"}', "unknown setting 'state.backnd.type'; did you mean 'state.backend.type'?"),
    ],
)
def test_settings_that_cannot_be_meant_are_a_verdict_too(settings: str, message: str, tmp_path: Path) -> None:
    verdict = check(write(tmp_path, STATELESS), settings)
    assert verdict["ok"] is False
    assert message.replace("\\", "") in verdict["error"]


def test_relative_paths_are_seen_from_the_directory_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, STATELESS)
    work = tmp_path / "work"
    (work / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert any("does not exist yet" in warning for warning in check(Path("my_job.py"))["warnings"])
    assert not any("does not exist yet" in warning for warning in check(Path("my_job.py"), directory=work)["warnings"])
    gone = check(path, directory=tmp_path / "gone")
    assert gone["ok"] is False
    assert "gone" in gone["error"]


def test_what_the_sinks_hold_is_told_and_one_that_cannot_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path, THREE_SINKS)
    (tmp_path / "out").mkdir()
    code, lines, _ = run("my_job.py", "--sinks", "orders", cwd=tmp_path)
    assert code == 0
    held = json.loads(lines[0])["plan"]["sinks"]
    assert held["out"] == {"history": "", "generation": 0, "groups": {}, "hidden": [], "staged": [], "faults": []}
    assert "error" in held["far"]
    assert held["seen"] == {}
    assert not list((tmp_path / "out").iterdir()), "nothing was changed"


def test_it_warns_where_checkpointing_is_off(tmp_path: Path) -> None:
    path = write(tmp_path, STATELESS)
    warnings = check(path)["warnings"]
    assert any(
        warning.startswith("checkpointing is off (execution.checkpointing.interval is not set)") for warning in warnings
    )
    assert len(check(path, '{"execution.checkpointing.interval": "1 s"}')["warnings"]) == len(warnings) - 1


def test_an_error_is_told_once_with_the_authors_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "def f():\n    return 1 / 0\nf()\n")
    verdict = check(path)
    assert verdict["error"].startswith(f"the job file {path} does not import: ZeroDivisionError: division by zero")
    assert f"{path}:2 in f: return 1 / 0" in verdict["error"]
    assert verdict["traceback"] == ""


@pytest.mark.parametrize("line", ['sources.files("{url}")', 'sinks.files("{url}")', 'nothing("{url}")'])
def test_credentials_in_the_authors_own_line_are_in_no_verdict(line: str, tmp_path: Path) -> None:
    url = "s3://KEY:SECRET@bucket/x"
    verdict = check(write(tmp_path, f"from headgate import sources, sinks\nit = {line.format(url=url)}\n"))
    assert not verdict["ok"]
    assert "line 2" in verdict["error"] or ":2" in verdict["error"]
    assert "SECRET" not in json.dumps(verdict)


def test_a_graph_that_is_none_is_told_by_name(tmp_path: Path) -> None:
    text = "import headgate\njob = headgate.Job('j')\njob.source('lines', headgate.sources.files('in'))\n"
    verdict = check(write(tmp_path, text))
    assert verdict == {
        "ok": False,
        "error": "job 'j' has no sink; end the stream with .sink(...)",
        "traceback": "",
    }


def test_a_missing_file_is_a_verdict(tmp_path: Path) -> None:
    verdict = check(tmp_path / "missing.py")
    assert verdict["ok"] is False
    assert verdict["error"].startswith(f"there is no job file {tmp_path}/missing.py")


def test_a_source_whose_columns_nobody_knows_is_warned_of_and_not_refused(tmp_path: Path) -> None:
    text = """
import headgate
from headgate.source.base import Source

class OwnSource(Source):
    kind = "own"
    guarantee = "at-most-once"

    def describe(self):
        return {"kind": self.kind}

job = headgate.Job("j")
job.source("rows", OwnSource()).key_by("who").aggregate("n", n=headgate.count()).sink("o", headgate.sinks.discard())
"""
    verdict = check(write(tmp_path, text))
    assert verdict["ok"] is True
    assert (
        "the columns of source rows are known only when it runs: what reads it was not checked" in verdict["warnings"]
    )


# ---- real columns

SINK = '.sink("out", headgate.sinks.discard())\n'
COUNT = f'.key_by("who").aggregate("counts", n=headgate.count()){SINK}'


def step(uid: str, stream: str, n: str = "pa.int64()") -> str:
    """A step that declares its output, in a variable of its own."""
    schema = f'pa.schema({{"n": {n}}})'
    return f'{uid} = {stream}.key_by("who").process("{uid}", lambda rows, keyed: None, output={schema}, state={{}})\n'


ON_SPARK: dict[str, tuple[str, str, str]] = {
    "good": (f'{HEAD}rows.transform(lambda df: df.where("id > 3")){COUNT}', "", ""),
    "a missing key column": (
        f"{HEAD}rows{COUNT}".replace('"who"', '"user"'),
        "key_by of 'counts': there is no column 'user'; the stream has id, who, at",
        "",
    ),
    "a column that a transform has dropped": (
        f'{HEAD}rows.transform(lambda df: df.select("id")){COUNT}',
        "key_by of 'counts': there is no column 'who'; the stream has id",
        "",
    ),
    "a sum of text": (
        f"{HEAD}rows{COUNT}".replace("headgate.count()", 'headgate.sum("who")'),
        "'counts': n=sum('who'): a column of type string cannot be summed; cast it to a number before key_by",
        "",
    ),
    "a transform that fails": (
        f'{HEAD}def broken(df):\n    return df.select("price")\n\nrows.transform(broken, uid="pick"){COUNT}',
        "transform 'pick' failed: AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        'in broken: return df.select("price")',
    ),
    "a transform that exits": (
        f"{HEAD}import sys\nrows.transform(lambda df: sys.exit(4)){COUNT}",
        "SystemExit: 4",
        "sys.exit(4)",
    ),
    "a transform that returns nothing": (
        f'{HEAD}rows.transform(lambda df: None, uid="pick"){COUNT}',
        "transform 'pick' returned NoneType, not a DataFrame",
        "",
    ),
    "state in Spark": (
        f'{HEAD}rows.transform(lambda df: df.dropDuplicates(["id"]), uid="once"){COUNT}',
        "the DataFrame code of transform 'once' uses dropDuplicates, which keeps state in Spark that no snapshot would",
        "",
    ),
    "a schema that the format cannot have": (
        f"{HEAD}rows{COUNT}".replace('format="json"', 'format="csv"').replace("at TIMESTAMP", "at ARRAY<INT>"),
        "source 'rows': the schema 'id BIGINT, who STRING, at ARRAY<INT>' is not valid: ",
        "",
    ),
    "a schema that is none, of records that go straight to a sink": (
        f"{HEAD}rows{SINK}".replace("id BIGINT", "id BIGNT"),
        "source 'rows': the schema 'id BIGNT, who STRING, at TIMESTAMP' is not valid: ",
        "",
    ),
    "a union of which one side lacks the key": (
        f'{HEAD}more = {OTHER}.transform(lambda df: df.select("id"))\nrows.union(more){COUNT}',
        "key_by of 'counts': there is no column 'who', in what 'other' gives; the stream has id",
        "",
    ),
    "a schema that is none": (
        f"{HEAD}rows{COUNT}".replace("id BIGINT", "id BIGNT"),
        "source 'rows': the schema 'id BIGNT, who STRING, at TIMESTAMP' is not valid: ",
        "",
    ),
    "two columns of one name": (
        (
            f"{HEAD}def add(df):\n    names = df.sparkSession.sql(\"SELECT 'ann' AS who\")\n"
            f"    return df.join(names, df.who == names.who)\n\nrows.transform(add){COUNT}"
        ),
        "step 'counts' is given 2 columns that cannot be told apart: 'who', 'who'; rename or drop one of them",
        "",
    ),
    "names that differ in case only": (
        f'{HEAD}rows.transform(lambda df: df.withColumnsRenamed({{"id": "WHO"}})){COUNT}',
        "step 'counts' is given 2 columns that cannot be told apart: 'WHO', 'who'; rename or drop one of them",
        "",
    ),
    "two columns of one name without a step": (
        f'{HEAD}rows.transform(lambda df: df.select("id", "id")){SINK}',
        "the stream is given 2 columns that cannot be told apart: 'id', 'id'; rename or drop one of them",
        "",
    ),
    "two columns of one name that the step does not read": (
        f'{HEAD}rows.transform(lambda df: df.select("id", "who", "id")){COUNT}',
        "",
        "",
    ),
    "event time": (
        f'{HEAD}rows.with_watermark("at", "5 s").transform(lambda df: df.select("who", "at")){COUNT}',
        "",
        "",
    ),
    "event time that is dropped": (
        f'{HEAD}rows.with_watermark("at", "5 s").transform(lambda df: df.select("who")){COUNT}',
        "with_watermark: there is no column 'at' before the step; keep it in the transforms; there are who",
        "",
    ),
    "event time that is none": (
        f'{HEAD}rows.with_watermark("who", "5 s"){COUNT}',
        "with_watermark: the column 'who' is of type string; make a timestamp of it in a transform, or a bigint of",
        "",
    ),
    "a union of the same columns in another order": (
        f'{HEAD}more = rows.transform(lambda df: df.select("at", "who", "id"))\nmore.union({OTHER}){COUNT}',
        "",
        "",
    ),
    "a union of other types": (
        f'{HEAD}{OTHER}.transform(lambda df: df.selectExpr("id", "at", "1 AS who")).union(rows){COUNT}',
        "union before 'counts': the column 'who' is of type int in what 'other' gives, and of type string in",
        "",
    ),
    "a union with a column that one side lacks": (
        f'{HEAD}rows.union({OTHER}.transform(lambda df: df.drop("id"))){SINK}',
        "union before 'rows.union1': the column 'id' is of type bigint in what 'rows' gives, and missing in",
        "",
    ),
    "a union of what two steps declare": (
        f"{HEAD}{step('one', 'rows')}{step('two', OTHER, n='pa.string()')}one.union(two){SINK}",
        "union before 'one.union1': the column 'n' is of type bigint in what 'one' gives, and of type string in what",
        "",
    ),
    "a union of a step and of a source that others read too": (
        f"{HEAD}rows.transform(lambda df: df){SINK.replace('out', 'all')}{step('one', 'rows')}one.union(rows){SINK}",
        "union before 'one.union1': the column ",
        "",
    ),
    "a union of which nobody knows the columns": (
        f"{HEAD}{step('one', 'rows')}one.map_arrow(lambda rows: rows).union({OTHER}){SINK}",
        "",
        "",
    ),
    "a transform behind a step that asks for what it does not give": (
        f"{HEAD}{step('one', 'rows')}one.transform(lambda df: df.select('m')){SINK}",
        "transform 'one.transform1' failed: AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        "one.transform(lambda",
    ),
    "a transform behind a step that looks at the records": (
        f"{HEAD}{step('one', 'rows')}one.transform(lambda df: df.limit(df.first().n)){SINK}",
        "",
        "",
    ),
    "keys of other types that are connected": (
        (
            f"{HEAD}{step('one', 'rows')}two = {OTHER}.transform(lambda df: df.selectExpr('CAST(id AS INT) AS id'))\n"
            'joined = two.key_by("id").connect(one.transform(lambda df: df.selectExpr("n AS id")).key_by("id"))\n'
            'both = joined.process("both", print, print, output=pa.schema({"n": pa.int64()}), state={})\n'
            f"both{SINK}"
        ),
        "connect before 'both': the key is of type int in what 'other' gives, and of type bigint in what 'one' does",
        "",
    ),
    "a backtick in a name": (
        f"{HEAD}rows.transform(lambda df: df.withColumnRenamed('who', 'w`o.')){COUNT}".replace('"who")', '"w`o.")'),
        "",
        "",
    ),
    "settings of Spark's that a transform needs": (
        f'{HEAD}rows.transform(lambda df: df.sparkSession.conf.get("spark.my.own") and df){COUNT}',
        "",
        "",
    ),
}
CHECK_ALL = """
import json, os, sys
from pathlib import Path
from headgate.job.check import check
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for path in sys.argv[1:]:
    verdict = check(Path(path), json.dumps({"spark.my.own": "yes", "spark.submit.deployMode": "cluster"}))
    out.write(json.dumps(verdict) + "\\n")
out.close()
os._exit(0)
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdict on each job, by one process: a JVM starts once."""
    folder = tmp_path_factory.mktemp("jobs")
    paths = [write(folder, text, f"job_{number}.py") for number, (text, _, _) in enumerate(ON_SPARK.values())]
    paths.append(REPO / "spark_jobs" / "jobs" / "running_number.py")
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'plugins'}{os.pathsep}{REPO / 'spark_jobs'}"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALL, *map(str, paths)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done.stderr[-3000:]
    return dict(zip([*ON_SPARK, "running number"], map(json.loads, lines), strict=True))


@pytest.mark.spark
@pytest.mark.parametrize("what", ON_SPARK)
def test_columns_are_checked_on_an_empty_stream_of_the_sources_schema(what: str, verdicts: dict[str, Any]) -> None:
    _, error, trace = ON_SPARK[what]
    verdict = verdicts[what]
    assert verdict["ok"] is not bool(error), verdict
    if error:
        assert verdict["error"].startswith(error)
        assert trace in verdict["traceback"]
        assert bool(trace) == bool(verdict["traceback"])


@pytest.mark.spark
def test_the_examples_pass(verdicts: dict[str, Any], tmp_path: Path) -> None:
    assert verdicts["running number"]["plan"]["job"] == "running-number"
    word_count = REPO / "spark_jobs" / "jobs" / "word_count.py"
    code, lines, errors = run(str(word_count), "--settings", "{}", cwd=tmp_path)
    assert code == 0, errors[-3000:]
    assert [json.loads(line)["plan"]["job"] for line in lines] == ["word-count"], "one line, whatever the JVM says"
