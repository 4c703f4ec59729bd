"""A driver gives a sign of life before it reads its stream's log, which may take long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headgate.driver import __main__ as driver
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import StorageError
from headgate_contract.heartbeats import StreamState, read_heartbeat
from headgate_contract.ids import Generation, StreamName
from headgate_contract.root_store import make_root, open_root
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.driver.waiting import until


def test_before_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    identity, _ = make_root(open_root(str(root)), by="test", at_ms=0)
    beating: list[StreamState] = []

    def slow_log(store: ObjectStore, stream: StreamName) -> Catalogue:
        def state() -> StreamState | None:
            seen = read_heartbeat(open_store(str(root)), stream, Generation(3))
            return seen.heartbeat.state if seen is not None and seen.heartbeat is not None else None

        until(lambda: state() is not None, "the driver beats")
        beating.append(state() or StreamState.FAILED)
        raise StorageError("and then the log cannot be read")

    monkeypatch.setattr(driver, "read_catalogue", slow_log)
    arguments = [
        "--root",
        str(root),
        "--root-id",
        identity.id,
        "--stream",
        "orders",
        "--generation",
        "3",
        "--launch",
        "x",
    ]
    monkeypatch.setattr(sys, "argv", ["driver", *arguments, "--work", str(tmp_path / "work")])
    assert driver.main() == StorageError.exit_code
    assert beating == [StreamState.LAUNCHED]
