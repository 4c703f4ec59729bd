"""The object store on S3 and its kin through s3fs: create sends If-None-Match, so that of racing writers one wins."""

from __future__ import annotations

import errno
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec

from headgate_contract.errors import ObjectMissing, StorageError, StorageUnreachable
from headgate_contract.paths import CLOCK
from headgate_contract.store import ObjectInfo, ObjectStore

_ATTEMPTS = 6


class S3Store(ObjectStore):
    """Objects below `s3://bucket/prefix`. Credentials come from `options` or the environment, never from the URL."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self._root = self.url.removeprefix("s3://")
        settings: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, **options}
        self._fs = fsspec.filesystem("s3", **settings)

    def create(self, path: str, data: bytes) -> bool:
        for attempt in range(_ATTEMPTS):
            try:
                self._fs.pipe_file(self._path(path), data, mode="create")
                return True
            except FileExistsError:
                return self._is_mine(path, data)
            except OSError as error:
                code = _code(error)
                if code in ("PreconditionFailed", "412") or error.errno == errno.EINVAL:
                    return self._is_mine(path, data)
                if attempt == _ATTEMPTS - 1:
                    raise StorageError(f"cannot create {path} on {self.url}: {error}") from error
                time.sleep(0.05 * 2**attempt)
        raise StorageError(f"cannot create {path} on {self.url}: the store kept refusing")

    def _is_mine(self, path: str, data: bytes) -> bool:
        """After a refusal: was it an earlier try of this very call that won, whose answer was lost?"""
        try:
            return self.read(path) == data
        except ObjectMissing as error:
            raise StorageError(f"{path} on {self.url} was refused as existing, but is not there") from error

    def replace(self, path: str, data: bytes) -> None:
        self._call("write", path, lambda: self._fs.pipe_file(self._path(path), data))

    def read(self, path: str) -> bytes:
        found = self._call("read", path, lambda: self._fs.cat_file(self._path(path)))
        return bytes(found)

    def stat(self, path: str) -> ObjectInfo | None:
        try:
            self._fs.invalidate_cache(self._path(path))
            found = self._fs.info(self._path(path), refresh=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot look at {path} on {self.url}: {error}") from error
        return ObjectInfo(path, found["size"], found["LastModified"].timestamp()) if found["type"] == "file" else None

    def list(self, folder: str) -> list[ObjectInfo]:
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(self._path(folder), detail=True, refresh=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"cannot list {folder} on {self.url}: {error}") from error
        prefix = self._path(folder).rstrip("/") + "/"
        return sorted(
            (
                ObjectInfo(name.removeprefix(self._root).lstrip("/"), info["size"], info["LastModified"].timestamp())
                for name, info in found.items()
                if info["type"] == "file" and name.startswith(prefix)
            ),
            key=lambda info: info.path,
        )

    def delete(self, path: str) -> bool:
        if self.stat(path) is None:
            return False
        self._call("delete", path, lambda: self._fs.rm_file(self._path(path)))
        return True

    def upload(self, local: Path, path: str) -> int:
        if not local.exists():
            raise ObjectMissing(f"the local file {local} is gone")
        self._call("write", path, lambda: self._fs.put_file(str(local), self._path(path)))
        return local.stat().st_size

    def download(self, path: str, local: Path) -> int:
        temp = local.parent / f".tmp-{uuid.uuid4().hex}"
        try:
            self._call("read", path, lambda: self._fs.get_file(self._path(path), str(temp)))
            temp.replace(local)
        finally:
            temp.unlink(missing_ok=True)
        return local.stat().st_size

    def move(self, source: str, target: str) -> bool:
        if self.stat(source) is None:
            if self.stat(target) is None:
                raise ObjectMissing(f"neither {source} nor {target} is on {self.url}")
            return False
        self._call("copy", source, lambda: self._fs.cp_file(self._path(source), self._path(target)))
        self._call("delete", source, lambda: self._fs.rm_file(self._path(source)))
        return True

    def now(self) -> float:
        probe = f"{CLOCK}/{uuid.uuid4().hex}"
        self.replace(probe, b"tick\n")
        found = self.stat(probe)
        self.delete(probe)
        if found is None:
            raise StorageError(f"{self.url} lost an object that was just written")
        return found.modified

    def sync(self, path: str) -> None:
        if self.stat(path) is None:
            raise ObjectMissing(f"{path} is not on {self.url}")

    def check_writable(self) -> None:
        try:
            self.now()
        except (StorageError, OSError) as error:
            raise StorageUnreachable(
                f"the root {self.url} cannot be written: {error}",
                hint="check the bucket, the endpoint and the credentials",
            ) from error

    def _call(self, verb: str, path: str, action: Any) -> Any:
        try:
            return action()
        except FileNotFoundError:
            raise ObjectMissing(f"{path} is not on {self.url}") from None
        except OSError as error:
            raise StorageError(f"cannot {verb} {path} on {self.url}: {error}") from error

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the root {self.url}")
        return f"{self._root}/{path}"


def _code(error: BaseException) -> str:
    """The S3 error code behind an OSError of s3fs, or ''."""
    cause = error.__cause__
    response = getattr(cause, "response", None)
    return str(response["Error"].get("Code", "")) if isinstance(response, dict) and "Error" in response else ""
