"""Streams that write into one folder are warned of, however its name is spelled."""

from __future__ import annotations

import pytest

from headgate_contract.ids import StreamName
from headgate_contract.records import Deployed
from headgate_control.deploy import warnings_of
from headgate_control.neighbours import shared_folders
from tests.control.world import World

MINE, OTHER = StreamName("mine"), StreamName("other")


def deployed(*paths: str, directory: str = "/jobs") -> Deployed:
    sinks = {f"out{number}": {"kind": "files", "path": path} for number, path in enumerate(paths)}
    plan = {"sinks": {**sinks, "console": {"kind": "console"}}}
    return Deployed(job="job.py", job_sha256="", directory=directory, settings={}, plan=plan, by="anna", at_ms=0)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("/data/out", "/data/out"),
        ("/data/out/", "file:///data/out"),
        ("out", "/jobs/out"),
        ("./x/../out", "../jobs/out"),
        ("/data/a%20b", "/data/a%20b"),
        ("file:///data/a%20b", "/data/a b"),
        ("/data", "/data/out"),
        ("s3://bucket/out", "s3a://bucket/out/"),
        ("s3://bucket/out/deep", "s3://bucket/out"),
    ],
)
def test_one_folder_or_one_within_the_other_is_told(mine: str, other: str) -> None:
    (warning,) = shared_folders(MINE, deployed(mine), {OTHER: deployed(other), MINE: deployed(mine)})
    assert warning.startswith("sink out0 and sink out0 of stream other both write ")


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("/data/out", "/data/out2"),
        ("out", "/elsewhere/out"),
        ("s3://one/out", "s3://two/out"),
        ("/b/out", "s3://b/out"),
    ],
)
def test_folders_of_their_own_are_not(mine: str, other: str) -> None:
    assert shared_folders(MINE, deployed(mine), {OTHER: deployed(other)}) == ()


def test_two_sinks_of_one_job_are_told() -> None:
    (warning,) = shared_folders(MINE, deployed("/data/out", "/data/out"), {})
    assert warning.startswith("the sinks out0 and out1 both write to /data/out: who reads it takes")


def test_a_deploy_warns_of_another_stream_that_writes_there(world: World) -> None:
    world.write_job("SINK_PATHS = {'out': 'out'}")
    for stream, warned in (("first", 0), ("second", 1)):
        told = world.control().deploy(stream, world.job, {}, directory=world.folder)
        assert len(warnings_of(told)) == warned
    assert "stream first" in warnings_of(told)[0]
