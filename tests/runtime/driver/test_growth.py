"""What a long life leaves: nothing but what the log says."""

from __future__ import annotations

import os
from pathlib import Path

from headgate_contract.store import TEMP_PREFIX
from tests.runtime.driver.life_world import STREAM, LifeWorld
from tests.runtime.driver.waiting import until


def test_what_killed_drivers_were_writing_is_deleted_by_their_successor(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.write(2)
    life = world.begin()
    life.read_all()
    life.until_completed(1)
    assert life.stop() is None
    root = tmp_path / "root"
    stream = root / "streams" / STREAM
    left = [
        folder / f"{TEMP_PREFIX}left"
        for folder in (stream / "shared", stream / "slots", stream / "savepoints" / "half", root / "fleet/heartbeats")
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half of it")
        os.utime(path, (0, 0))
    fresh = stream / "shared" / f"{TEMP_PREFIX}fresh"
    fresh.write_bytes(b"somebody is at it")

    life = world.begin()
    until(lambda: life.error or not any(path.exists() for path in left), "all of them go")
    assert life.stop() is None
    assert fresh.exists()
    world.check_output()
