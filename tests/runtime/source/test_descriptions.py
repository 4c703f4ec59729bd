"""What a job's author may say of a source, and what is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import sources
from headgate_contract.errors import JobInvalid


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"host": ""}, "the host is ''"),
        ({"host": " a"}, "the host is ' a'"),
        ({"port": 0}, "the port is 0"),
        ({"port": 65_536}, "the port is 65536"),
        ({"port": "9999"}, "the port is '9999'"),
        ({"port": True}, "the port is True"),
        ({"resume": "yes"}, "resume is 'yes'"),
        ({"max_bytes_per_trigger": 0}, "max_bytes_per_trigger is 0"),
        ({"max_bytes_per_trigger": 1 << 31}, "max_bytes_per_trigger is 2147483648"),
        ({"max_line_bytes": -1}, "max_line_bytes is -1"),
    ],
)
def test_a_socket_that_cannot_be_meant_is_refused(arguments: dict[str, Any], why: str):
    with pytest.raises(JobInvalid, match=why):
        sources.socket(**{"host": "localhost", "port": 9999, **arguments})


def test_a_socket_is_exact_only_if_its_server_resumes():
    assert sources.socket("localhost", 9999, resume=True).guarantee == "exactly-once"
    assert sources.socket("localhost", 9999).guarantee == "at-most-once"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"format": "avro"}, "the format 'avro' is not known; known are text, json, csv, parquet"),
        ({"format": "json"}, "needs a schema"),
        ({"schema": "value STRING"}, "takes no schema"),
        ({"max_files_per_trigger": 0}, "max_files_per_trigger is 0"),
        ({"max_files_per_trigger": True}, "max_files_per_trigger is True"),
        ({"max_bytes_per_trigger": 0}, "max_bytes_per_trigger is 0"),
        ({"max_bytes_per_trigger": 1, "max_files_per_trigger": 1}, "has both max_files_per_trigger and max_bytes"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(arguments: dict[str, Any], why: str):
    with pytest.raises(JobInvalid, match=why):
        sources.files("in/", **arguments)


@pytest.mark.parametrize(
    "option",
    [
        "cleanSource",
        "sourceArchiveDir",
        "ignoreMissingFiles",
        "ignoreCorruptFiles",
        "fileNameOnly",
        "latestFirst",
        "maxFileAge",
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
        "path",
    ],
)
def test_options_of_spark_that_lose_records_or_change_the_order_are_refused(option: str):
    for spelled in (option, option.upper()):
        with pytest.raises(JobInvalid, match=f"the option '{option}' is refused; "):
            sources.files("in/", options={spelled: "true"})


def test_a_micro_batch_of_files_is_limited_in_bytes_unless_the_author_counts_files():
    assert sources.files("in/").max_bytes_per_trigger == 128 << 20
    assert sources.files("in/", max_bytes_per_trigger=5).max_bytes_per_trigger == 5
    assert sources.files("in/", max_files_per_trigger=5).max_bytes_per_trigger is None


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_line_that_does_not_fit_fails_the_stream_unless_the_author_says_otherwise(format: str):
    assert sources.files("in/", format=format, schema="a INT").options == {"mode": "FAILFAST"}
    own = {"MODE": "PERMISSIVE"}
    assert sources.files("in/", format=format, schema="a INT", options=own).options == own
    assert sources.files("in/").options == {}


@pytest.mark.parametrize("arguments", [{"rows_per_second": 0}, {"rows_per_batch": 0}, {"rows_per_batch": 1.5}])
def test_a_rate_that_cannot_be_meant_is_refused(arguments: dict[str, Any]):
    with pytest.raises(JobInvalid, match="it must be 1 or more"):
        sources.rate(**arguments)


def test_a_plan_tells_of_a_source_without_its_options():
    source = sources.files("in/", format="csv", schema="a INT", options={"password": "secret"})
    assert source.describe() == {"kind": "files", "path": "in/", "format": "csv", "schema": "a INT"}
    assert sources.socket("here", 1).describe() == {"kind": "socket", "host": "here", "port": 1, "resume": False}
    assert sources.rate(5).describe() == {"kind": "rate", "rows_per_second": 5, "rows_per_batch": None}


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/in", "s3a://KEY:SE/CRET@bucket/in"])
def test_a_url_with_credentials_is_refused_when_the_source_is_made_and_does_not_show_them(url: str):
    with pytest.raises(JobInvalid, match=r"the URL carries credentials") as refused:
        sources.files(url)
    assert "SE" not in str(refused.value)
