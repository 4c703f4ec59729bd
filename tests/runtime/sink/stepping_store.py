"""A store that says which call comes next, so that a test can kill or freeze its user there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from headgate_contract.errors import ObjectMissing
from headgate_contract.store import ObjectInfo, ObjectStore


class Killed(BaseException):
    """SIGKILL: no `except Exception` sees it."""


class SteppingStore(ObjectStore):
    """Calls `before` with each call's name. With `split_moves` a move is a copy and then a delete, as on S3."""

    def __init__(self, inner: ObjectStore, before: Callable[[str], object], *, split_moves: bool = False) -> None:
        self.inner = inner
        self.url = inner.url
        self._before = before
        self._split_moves = split_moves

    @property
    def local(self) -> Path | None:
        return self.inner.local

    def guard_by(self, check: Callable[[], None]) -> None:
        self.inner.guard_by(check)

    def make_folder(self, folder: str) -> None:
        self.inner.make_folder(folder)

    def create(self, path: str, data: bytes) -> bool:
        self._before(f"create {path}")
        return self.inner.create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._before(f"replace {path}")
        self.inner.replace(path, data)

    def read(self, path: str) -> bytes:
        self._before(f"read {path}")
        return self.inner.read(path)

    def stat(self, path: str) -> ObjectInfo | None:
        self._before(f"stat {path}")
        return self.inner.stat(path)

    def list(self, folder: str) -> list[ObjectInfo]:
        self._before(f"list {folder}")
        return self.inner.list(folder)

    def delete(self, path: str) -> bool:
        self._before(f"delete {path}")
        return self.inner.delete(path)

    def delete_all(self, folder: str) -> int:
        return super().delete_all(folder) + self.inner.delete_all(folder)  # on a local disk empty folders are left

    def delete_broken_writes(self, folder: str) -> int:
        return self.inner.delete_broken_writes(folder)

    def upload(self, local: Path, path: str) -> int:
        self._before(f"upload {path}")
        return self.inner.upload(local, path)

    def download(self, path: str, local: Path) -> int:
        self._before(f"download {path}")
        return self.inner.download(path, local)

    def move(self, source: str, target: str) -> bool:
        self._before(f"move {source}")
        if not self._split_moves:
            return self.inner.move(source, target)
        if self.inner.stat(source) is None:
            if self.inner.stat(target) is None:
                raise ObjectMissing(f"neither {source} nor {target}")
            return False
        self._before(f"copy {source}")
        self.inner.replace(target, self.inner.read(source))
        self._before(f"delete after copy {source}")
        self.inner.delete(source)
        return True

    def now(self) -> float:
        return self.inner.now()

    def sync(self, path: str) -> None:
        self._before(f"sync {path}")
        self.inner.sync(path)

    def check_writable(self) -> None:
        self.inner.check_writable()


class KillAt:
    """Kills before call number `at`, counted from 0. None: never."""

    def __init__(self, at: int | None) -> None:
        self.left = at

    def __call__(self, call: str) -> None:
        if self.left is None:
            return
        if self.left == 0:
            raise Killed(call)
        self.left -= 1


class FreezeAt:
    """Before call number `at` everything stands still while `meanwhile` runs, once; death may follow soon after."""

    def __init__(self, at: int, meanwhile: Callable[[], object], then_kill_after: int | None = None) -> None:
        self.left = at
        self.meanwhile = meanwhile
        self.then = KillAt(then_kill_after)
        self.froze = False

    def __call__(self, call: str) -> None:
        if self.froze:
            self.then(call)
        elif self.left == 0:
            self.froze = True
            self.meanwhile()
            self.then(call)
        self.left -= 1


class Turns:
    """Two actors in two threads, of which one runs at a time, for as many calls as it is given."""

    def __init__(self) -> None:
        self._go: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._budget: dict[str, int | None] = {}
        self._done: dict[str, bool] = {}
        self._threads: list[threading.Thread] = []
        self.errors: dict[str, BaseException] = {}

    def actor(self, name: str, run: Callable[[], object]) -> None:
        self._go[name], self._budget[name], self._done[name] = threading.Semaphore(0), 0, False
        thread = threading.Thread(target=self._main, args=(name, run), daemon=True)
        self._threads.append(thread)
        thread.start()

    def before(self, name: str) -> Callable[[str], None]:
        def wait(call: str) -> None:
            budget = self._budget[name]
            if budget is None:
                return
            if budget == 0:
                self._back.release()
                self._go[name].acquire()
                wait(call)
                return
            self._budget[name] = budget - 1

        return wait

    def run(self, name: str, calls: int | None = None) -> None:
        """Let `name` make `calls` more calls (None: all that it wants)."""
        if not self._done[name]:
            self._budget[name] = calls
            self._go[name].release()
            assert self._back.acquire(timeout=30), f"{name} is stuck"

    def finish(self) -> None:
        """Let each run to its end, one after the other."""
        for name in self._go:
            self.run(name)
        for thread in self._threads:
            thread.join(timeout=30)

    def _main(self, name: str, run: Callable[[], object]) -> None:
        self._go[name].acquire()
        try:
            run()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.errors[name] = error
        self._done[name] = True
        self._back.release()
