"""Slips in streams.yaml: none of them ends in an error, and none takes another stream's watch away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate_contract.settings import Settings
from headgate_control.fleet_reading import read_fleet
from tests.control.test_fleet_file import MANY_MISTAKES

GOOD = "  good:\n    job: jobs/a.py\n    root: /srv/r\n"
BAD = "streams:\n  bad:\n    job: {job}\n    root: {root}\n" + GOOD


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BAD.format(job="~nobody.here/a.py", root="/srv/r"), "home directory"),
        (BAD.format(job="a.py", root="~nobody.here/root"), "is not absolute"),
        (BAD.format(job="a.py", root="'s3://[bucket/x'"), "is no URL"),
        (BAD.format(job="a.py", root='"a\\0b"'), "is not absolute"),
        (BAD.format(job='"a\\0b.py"', root="/srv/r"), "null byte"),
        (BAD.format(job="[" * 300 + "]" * 300, root="/srv/r"), "nested too deeply"),
        (BAD.format(job="{a: " * 300 + "}" * 300, root="/srv/r"), "nested too deeply"),
        (BAD.format(job="!!int ''", root="/srv/r"), "cannot be meant"),
        (BAD.format(job="!!bool x", root="/srv/r"), "cannot be meant"),
        (BAD.format(job="!!timestamp x", root="/srv/r"), "cannot be meant"),
        ("root: ~nobody.here/root\nstreams:\n" + GOOD, "is not absolute"),
        ("root: !!bool x\nstreams:\n" + GOOD, "cannot be meant"),
        ("{{ root }}: /srv/r\nstreams:\n" + GOOD, "templates are not filled in"),
        ("{root}: /srv/r\nstreams:\n" + GOOD, "no text"),
        ("[root]: /srv/r\nstreams:\n" + GOOD, "no text"),
        ("streams:\n  Bad Name!: {job: a.py}\n  Bad Name!: {job: a.py}\n" + GOOD, "not a valid stream name"),
    ],
)
def test_whatever_cannot_be_meant_is_told_and_the_other_streams_stay(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    found = read_fleet(path)
    assert list(found.streams) == ["good"]
    assert found.is_read
    assert said in str(found.mistakes[0].at(path))


def test_an_error_that_nobody_has_foreseen_is_a_mistake_of_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprised(given: dict[str, object]) -> Settings:
        if given:
            raise ZeroDivisionError("by surprise")
        return Settings(given)

    monkeypatch.setattr("headgate_control.fleet_reading.Settings", surprised)
    path = tmp_path / "streams.yaml"
    path.write_text("streams:\n  bad: {job: a.py, settings: {heartbeat.interval: 1 s}}\n" + GOOD)
    found = read_fleet(path)
    assert list(found.streams) == ["good"]
    assert [str(mistake.at(path)) for mistake in found.mistakes] == [
        f"{path}:2: stream bad cannot be read: by surprise"
    ]


_TAGS = [
    "int",
    "float",
    "bool",
    "null",
    "timestamp",
    "binary",
    "set",
    "omap",
    "pairs",
    "map",
    "seq",
    "value",
    "nothing",
]
_TAGGED = ["x", "''", "[a]", "{a: 1}", "[[a, 1]]", "[{a: 1}]", "99999999-01-01", "1:-2", "'='"]
_WORDS = ["~", "''", "1:30", "0x", ".nan", "-.inf", "1e400", "2020-99-99", "no", "<<", "=", "null", "'s3://['"]
_TYPED = st.recursive(
    st.sampled_from(_WORDS)
    | st.text(max_size=8).map(json.dumps)
    | st.builds("!!{} {}".format, st.sampled_from(_TAGS), st.sampled_from(_TAGGED)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda many: f"[{', '.join(many)}]")
        | st.builds("{{? {} : {}}}".format, inner, inner)
    ),
    max_leaves=4,
)
_PLACES = ["job", "root", "directory", "savepoint", "settings", "settings: {heartbeat.interval", "<<"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(typed=_TYPED, place=st.sampled_from(_PLACES))
def test_no_value_of_a_stream_takes_another_one_away(tmp_path: Path, typed: str, place: str) -> None:
    path = tmp_path / "streams.yaml"
    entry = f"{place}: {typed}" + ("}" if "{" in place else "")
    path.write_text(f"streams:\n  bad:\n    {entry}\n    directory: .\n" + GOOD)
    assert "good" in read_fleet(path).streams
    path.write_text(f"? {typed}\n: x\nstreams:\n  ? {typed}\n  : {{job: a.py}}\n" + GOOD)
    assert "good" in read_fleet(path).streams


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, len(MANY_MISTAKES)),
    cut=st.integers(0, 5),
    put=st.text("{}[]&*!|>%@`?:-#,'\"\\~x1 \n\t\0", max_size=4),
)
def test_no_slip_in_a_file_ends_in_an_error(tmp_path: Path, at: int, cut: int, put: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(MANY_MISTAKES[:at] + put + MANY_MISTAKES[at + cut :])
    found = read_fleet(path)
    assert found.is_read or found.mistakes
