"""A stream whose storage and whose output are on S3 is killed and restored: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import fsspec
import pytest

from headgate_contract.heartbeats import Heartbeat
from headgate_control.outcomes import Launched
from tests.contract.store_suite import unique
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.truth import write_input
from tests.servers.conftest import BUCKET

pytestmark = pytest.mark.servers

RECORDS = 4000
SETTINGS = {"execution.checkpointing.interval": "500 ms", "heartbeat.interval": "500 ms", "heartbeat.timeout": "10 s"}


def _visible(stream: StreamUnderFire, folder: Path) -> Path:
    """What a reader of the bucket sees, copied here."""
    files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    folder.mkdir()
    for path in files.glob(f"{stream.environment['NUMBERS_OUT'].removeprefix('s3://')}/*.parquet"):
        files.get_file(path, str(folder / Path(path).name))
    return folder


def _kill_and_restore(tmp_path: Path, backend: str, kills: int) -> None:
    storage = f"s3://{BUCKET}/{unique()}"
    stream = StreamUnderFire(
        tmp_path,
        engine="stand-in",
        backend=backend,
        settings=SETTINGS,
        storage=f"{storage}/root",
        environment={"NUMBERS_OUT": f"{storage}/out"},
    )
    write_input(stream.given, seed=5, records=RECORDS, files=30, keys=300)
    stream.deploy()
    chance = random.Random(backend)

    def reads(beat: Heartbeat) -> bool:
        return beat.progress.batches > 0 or beat.progress.records == RECORDS

    launched: Launched | None = None
    try:
        for _ in range(kills):
            launched = stream.start()
            stream.wait(launched.generation, reads, timeout_s=120)
            time.sleep(chance.uniform(0.2, 1.5))
            kill_group(launched)
        launched = stream.start()
        stream.wait(launched.generation, lambda beat: beat.progress.records == RECORDS, timeout_s=120)
        stream.control().stop(stream.name)
        wait_gone(launched.process.pid)
    finally:
        if launched is not None and Path(f"/proc/{launched.process.pid}").exists():
            kill_group(launched)
    verdict = check(stream.given, _visible(stream, tmp_path / "seen"))
    assert verdict.ok, str(verdict)


def test_a_killed_stream_on_moto_loses_and_doubles_nothing(
    tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    _kill_and_restore(tmp_path, "hashmap", kills=2)


@pytest.mark.minio
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_killed_stream_on_minio_loses_and_doubles_nothing(tmp_path: Path, backend: str) -> None:
    assert "AWS_ENDPOINT_URL" in os.environ, "no MinIO: `make test-minio` starts one and says where it is"
    _kill_and_restore(tmp_path, backend, kills=4)
