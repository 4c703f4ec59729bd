"""The object store on S3: against moto in every run, against a real MinIO in `make test-minio`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate_contract.errors import StorageError, StorageUnreachable
from headgate_contract.store import ObjectStore, open_store
from headgate_contract.store_s3 import S3Store
from tests.contract.root_suite import RootSuite
from tests.contract.store_suite import ObjectStoreSuite, unique
from tests.servers.conftest import BUCKET
from tests.servers.moto import options

pytestmark = pytest.mark.servers


@pytest.fixture
def store(opened: ObjectStore) -> Iterator[ObjectStore]:
    """What a class has opened, which takes a second: emptied after each test."""
    yield opened
    opened.delete_all("")


class TestRootOnMoto(RootSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, moto: str) -> ObjectStore:
        store = open_store(f"s3://{BUCKET}/{unique()}", options(moto))
        assert store.stays_s > 0
        store.stays_s = 0.0  # else it is taken to be there for a moment longer
        return store

    @pytest.fixture
    def inner(self, opened: ObjectStore) -> Iterator[ObjectStore]:
        yield opened
        opened.delete_all("")


class TestMotoStore(ObjectStoreSuite):
    ROUNDS = 3

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, moto: str) -> ObjectStore:
        return open_store(f"s3://{BUCKET}/{unique()}", options(moto))

    def test_a_bucket_that_is_not_there_is_named(self, moto: str) -> None:
        store = open_store("s3://no-such-bucket/x", options(moto))
        with pytest.raises(StorageUnreachable, match=r"no-such-bucket/x cannot be written.*bucket"):
            store.check_writable()
        with pytest.raises(StorageError, match=r"cannot ask the time on s3://no-such-bucket/x"):
            store.now()
        assert store.stat("a") is None

    def test_credentials_and_endpoint_come_from_the_environment_too(
        self, moto: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        store = open_store(f"s3a://{BUCKET}/{unique()}/")
        assert store.create("a", b"1")
        assert open_store(store.url, options(moto)).read("a") == b"1"

    def test_a_whole_bucket_can_be_the_root(self, moto: str) -> None:
        store = open_store(f"s3://{BUCKET}", options(moto))
        path = f"{unique()}/a"
        assert store.create(path, b"1")
        assert path in [info.path for info in store.list("")]
        assert store.delete_all(path.partition("/")[0]) == 1

    def test_an_endpoint_that_ignores_the_condition_of_a_create_is_refused(
        self, moto: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = open_store(f"s3://{BUCKET}/{unique()}", options(moto))
        store.check_writable()
        assert isinstance(store, S3Store)
        conditional = store._fs.pipe_file
        monkeypatch.setattr(store._fs, "pipe_file", lambda path, data, mode="overwrite": conditional(path, data))
        with pytest.raises(StorageUnreachable, match=r"that is there already.*If-None-Match"):
            store.check_writable()
        assert store.list("") == []

    def test_asking_for_the_time_writes_nothing(self, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
        store = open_store(f"s3://{BUCKET}/{unique()}", options(moto))
        assert isinstance(store, S3Store)
        asked: list[str] = []
        unhindered = store._fs.call_s3

        def listen(verb: str, **question: Any) -> Any:
            asked.append(verb)
            return unhindered(verb, **question)

        monkeypatch.setattr(store._fs, "call_s3", listen)
        monkeypatch.setattr(store._fs, "pipe_file", None)
        assert abs(store.now() - time.time()) < 60
        assert asked == ["list_objects_v2"]
        dateless = {"ResponseMetadata": {"HTTPHeaders": {}}}
        monkeypatch.setattr(store._fs, "call_s3", lambda verb, **question: dateless)
        with pytest.raises(StorageError, match="does not tell the time"):
            store.now()

    def test_an_endpoint_where_nobody_listens_is_said_within_seconds(self) -> None:
        store = open_store(f"s3://{BUCKET}/x", options("http://127.0.0.1:9"))
        with pytest.raises(StorageUnreachable, match=r"127\.0\.0\.1:9.*check the bucket, the endpoint"):
            store.check_writable()
        with pytest.raises(StorageError):
            store.read("a")


@pytest.mark.minio
class TestMinioStore(ObjectStoreSuite):
    ROUNDS = 20

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls) -> ObjectStore:
        assert "AWS_ENDPOINT_URL" in os.environ, "no MinIO: `make test-minio` starts one and says where it is"
        return open_store(f"s3://{BUCKET}/{unique()}")

    def test_a_large_object_is_created_once_too(self, store: ObjectStore, tmp_path: Path) -> None:
        data = os.urandom(1 << 20) * 101  # more than one part
        assert store.create("large", data)
        assert store.create("large", data)
        assert not store.create("large", data[:-1])
        assert store.download("large", tmp_path / "down") == len(data)
        assert (tmp_path / "down").read_bytes() == data

    def test_a_large_file_goes_up_in_parts(self, store: ObjectStore, tmp_path: Path) -> None:
        data = os.urandom(1 << 20) * 120
        (tmp_path / "up").write_bytes(data)
        assert store.upload(tmp_path / "up", "shared/large") == len(data)
        assert store.read("shared/large") == data

    def test_a_listing_of_more_than_one_page_is_whole(self, store: ObjectStore) -> None:
        for number in range(1005):
            store.replace(f"slots/{number:08d}", b"")
        assert [info.path for info in store.list("slots")] == [f"slots/{number:08d}" for number in range(1005)]
