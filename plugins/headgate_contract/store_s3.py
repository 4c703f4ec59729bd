"""The object store on S3 and its kin through s3fs: create sends If-None-Match, so that of racing writers one wins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import sync

from headgate_contract.errors import ObjectMissing, StorageError, StorageUnreachable
from headgate_contract.store import (
    Aged,
    Listing,
    ObjectInfo,
    ObjectStore,
    check_folder,
    check_path,
    open_store,
    whole_file,
)

T = TypeVar("T")

_Pages = list[dict[str, Any]]

_ATTEMPTS = 7
_FIRST_PAUSE_S = 0.05
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
"""Answers that say: not now."""
_REFUSED = 412
_OF_BUCKET = frozenset({"create", "write", "ask"})
"""What fails as not found because the bucket is not there."""
_LOWER_RETRIES = 2
"""How often s3fs and botocore repeat a call by themselves; the pauses of both multiply, so few."""


class S3Store(ObjectStore):
    """Objects below `s3://bucket/prefix`. Credentials come from `options` or the environment, never from the URL."""

    stays_s = 1.0

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self._options = options
        self._root = self.url.removeprefix("s3://")
        patience = {"retries": {"mode": "standard", "max_attempts": _LOWER_RETRIES}, "connect_timeout": 10}
        settings: dict[str, Any] = {
            "use_listings_cache": False,
            "skip_instance_cache": True,
            **options,
            "config_kwargs": {**patience, **options.get("config_kwargs", {})},
        }
        self._fs = fsspec.filesystem("s3", **settings)
        self._fs.retries = _LOWER_RETRIES

    def elsewhere(self, url: str) -> ObjectStore:
        return open_store(url, self._options if url.startswith(("s3://", "s3a://")) else None)

    def create(self, path: str, data: bytes) -> bool:
        target = self._path(path)

        def once() -> bool:
            try:
                self._fs.pipe_file(target, data, mode="create")
            except OSError as error:
                if not (isinstance(error, FileExistsError) or _status(error) == _REFUSED):
                    raise
                return self._is_mine(path, data)
            return True

        return self._call("create", path, once)

    def _is_mine(self, path: str, data: bytes) -> bool:
        """After a refusal: was it an earlier try with these very bytes that won, whose answer was lost?"""
        try:
            return self.read(path) == data
        except ObjectMissing as error:
            raise StorageError(f"{path} on {self.url} was refused as existing, but is not there") from error

    def replace(self, path: str, data: bytes) -> None:
        target = self._path(path)
        self._call("write", path, lambda: self._fs.pipe_file(target, data))

    def read(self, path: str) -> bytes:
        target = self._path(path)
        return bytes(self._call("read", path, lambda: self._fs.cat_file(target)))

    def stat(self, path: str) -> ObjectInfo | None:
        target = self._path(path)
        try:
            found = self._call("look at", path, lambda: self._fs.info(target, refresh=True))
        except ObjectMissing:
            return None
        return ObjectInfo(path, found["size"], found["LastModified"].timestamp()) if found["type"] == "file" else None

    def list(self, folder: str) -> Listing:
        top = f"{self._root}/{check_folder(folder, self.url)}".rstrip("/")
        try:
            found = self._call("list", folder, lambda: self._fs.find(top, detail=True, refresh=True))
        except ObjectMissing:
            return []
        return sorted(
            (
                ObjectInfo(name.removeprefix(f"{self._root}/"), info["size"], info["LastModified"].timestamp())
                for name, info in found.items()
                if info["type"] == "file" and name.startswith(f"{top}/")
            ),
            key=lambda info: info.path,
        )

    def list_after(self, folder: str, name: str) -> Listing:
        pages = self._pages(folder, StartAfter=f"{self._key(folder)}/{name}")
        found = [each for page in pages for each in page.get("Contents", ())]
        above = len(self._root.partition("/")[2].rstrip("/")) + 1 if "/" in self._root else 0
        return sorted(
            (ObjectInfo(each["Key"][above:], each["Size"], each["LastModified"].timestamp()) for each in found),
            key=lambda info: info.path,
        )

    def folders(self, folder: str) -> Sequence[str]:
        found = [each["Prefix"] for page in self._pages(folder) for each in page.get("CommonPrefixes", ())]
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)

    def read_aged(self, path: str) -> Aged | None:
        bucket, _, key = self._path(path).partition("/")

        async def get() -> tuple[bytes, dict[str, Any]]:
            answer = await self._fs._call_s3("get_object", Bucket=bucket, Key=key)
            try:
                return await answer["Body"].read(), answer
            finally:
                answer["Body"].close()

        try:
            data, answer = self._call("read", path, lambda: sync(self._fs.loop, get))
        except ObjectMissing:
            return None
        modified = answer["LastModified"].timestamp()
        return Aged(data, modified, max(0.0, self._time_of(answer) - modified))

    def _pages(self, folder: str, **question: str) -> _Pages:
        """The answers to a listing of what is right below `folder`, a thousand names each."""
        bucket = self._root.partition("/")[0]
        asked = {"Bucket": bucket, "Prefix": f"{self._key(folder)}/", "Delimiter": "/", **question}
        pages: _Pages = []
        while not pages or pages[-1].get("IsTruncated"):
            if pages:
                asked["ContinuationToken"] = pages[-1]["NextContinuationToken"]
            pages.append(self._call("list", folder, lambda: self._fs.call_s3("list_objects_v2", **asked)))
        return pages

    def _key(self, folder: str) -> str:
        return f"{self._root}/{check_folder(folder, self.url)}".partition("/")[2]

    def delete(self, path: str) -> bool:
        target = self._path(path)
        if self.stat(path) is None:
            return False
        self._call("delete", path, lambda: self._fs.rm_file(target))
        return True

    def delete_many(self, paths: Sequence[str]) -> None:
        targets = [self._path(path) for path in paths]
        if targets:
            self._call("delete", paths[0], lambda: self._fs.rm(targets))

    def upload(self, local: Path, path: str) -> int:
        target = self._path(path)
        if not local.is_file():
            raise ObjectMissing(f"the local file {local} is gone")
        self._call("write", path, lambda: self._fs.put_file(str(local), target))
        return local.stat().st_size

    def download(self, path: str, local: Path) -> int:
        target = self._path(path)
        with whole_file(local) as temp:
            self._call("read", path, lambda: self._fs.get_file(target, str(temp)))
        return local.stat().st_size

    def move(self, source: str, target: str) -> bool:
        start, end = self._path(source), self._path(target)
        if source == target and self.stat(source) is not None:
            return True
        try:
            self._call("copy", source, lambda: self._fs.cp_file(start, end))
        except ObjectMissing:
            if self.stat(target) is None:
                raise ObjectMissing(f"neither {source} nor {target} is on {self.url}") from None
            return False
        self._call("delete", source, lambda: self._fs.rm_file(start))
        return True

    def now(self) -> float:
        """What the server says in its answers; nothing is written for it."""
        bucket, _, prefix = self._root.partition("/")
        question = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1}  # whoever may list may ask this
        return self._time_of(self._call("ask", "the time", lambda: self._fs.call_s3("list_objects_v2", **question)))

    def _time_of(self, answer: dict[str, Any]) -> float:
        said = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        try:
            return parsedate_to_datetime(said).timestamp()
        except ValueError:
            raise StorageError(f"{self.url} does not tell the time: its answer has the date {said!r}") from None

    def sync(self, path: str) -> None:
        if self.stat(path) is None:
            raise ObjectMissing(f"{path} is not on {self.url}")

    def check_writable(self) -> None:
        try:
            self._probe()
        except StorageUnreachable:
            raise
        except StorageError as error:
            raise StorageUnreachable(
                f"the root {self.url} cannot be written: {error.what}",
                hint="check the bucket, the endpoint and the credentials",
            ) from error

    def _call(self, verb: str, path: str, action: Callable[[], T]) -> T:
        """Run `action`, again while the store says "not now"; what else goes wrong becomes an error of ours."""
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return action()
            except StorageError:
                raise
            except FileNotFoundError as error:
                if verb in _OF_BUCKET:
                    raise StorageError(f"cannot {verb} {path} on {self.url}: {error}") from error
                raise ObjectMissing(f"{path} is not on {self.url}") from None
            except Exception as error:  # s3fs lets the errors of botocore and aiohttp through, which are no OSErrors
                if attempt == _ATTEMPTS or _status(error) not in _AGAIN:
                    raise StorageError(f"cannot {verb} {path} on {self.url}: {error}") from error
            time.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("not reached: the last attempt returns or raises")

    def _path(self, path: str) -> str:
        return f"{self._root}/{check_path(path, self.url)}"


def _status(error: BaseException) -> int | None:
    """The HTTP status of the answer behind an error of s3fs, or None if there was no answer."""
    cause = error.__cause__ if getattr(error, "response", None) is None else error
    response = getattr(cause, "response", None)
    if not isinstance(response, dict):
        return None
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None
