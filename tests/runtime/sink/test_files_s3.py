"""The file sink on S3, where a move is a copy and a delete: killed, rolled back and taken up again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from headgate.sink.files import FilesSink
from headgate_contract.errors import Fenced
from headgate_contract.ids import CheckpointId, Generation
from tests.runtime.sink.stepping_store import KillAt, Killed
from tests.runtime.sink.world import SINK, STREAM, World, batch, task, visible_ids
from tests.servers.moto import make_bucket, moto_server, options

pytestmark = pytest.mark.servers

BUCKET = "headgate-sinks"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as endpoint:
        make_bucket(endpoint, BUCKET)
        yield endpoint


def test_an_authors_sink_publishes_to_a_bucket(endpoint: str) -> None:
    sink = FilesSink(f"s3://{BUCKET}/author", storage_options=options(endpoint))
    sink.check()
    committer = sink.committer(STREAM, SINK, Generation(1), "history")
    committer.begin(frozenset(), [], [], frozenset())
    handles = []
    for subtask in range(10):
        writer = sink.writer(task(subtask=subtask))
        writer.write(batch([subtask]))
        handles += writer.finish()
    committer.prepare(handles)
    assert visible_ids(sink.path, options=sink.storage_options) == []
    committer.commit(CheckpointId(1), handles)
    committer.commit(CheckpointId(1), handles)
    assert visible_ids(sink.path, options=sink.storage_options) == list(range(10))


def test_killed_rolled_back_and_taken_up_again_it_shows_the_truth(endpoint: str) -> None:
    world = World(url=f"s3://{BUCKET}/lives", options=options(endpoint), split_moves=True)
    world.begin(1, [])
    for group in (1, 2, 3):
        world.complete(1, group)
    world.commit(1, 1)
    for at in (4, 6, 9, 14):
        copy = world.copy()
        with suppress(Killed):
            copy.commit(1, 2, KillAt(at))
            copy.begin(2, (1,), carried=(1,), abandoned=(2, 3), before=KillAt(at))
            pytest.fail("nothing was killed")
        copy.begin(3, (1,), carried=(1,), abandoned=(2, 3))
        assert copy.visible() == copy.rows(1)
        with pytest.raises(Fenced):
            copy.commit(1, 3)
        copy.begin(4, (1, 2, 3), carried=(2, 3))
        assert copy.visible() == copy.rows(1, 2, 3)
        assert copy.staged() == []
