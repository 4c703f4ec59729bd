"""The logs of many streams: what is remembered of them, and what is not."""

from __future__ import annotations

import shutil
import threading

import pytest

from headgate_contract.errors import SlotTaken, StreamUnknown
from headgate_contract.ids import StreamName
from headgate_contract.records import Retired
from headgate_control.catalogues import Catalogues
from tests.control.world import STREAM, World


def test_a_stream_without_anything_is_unknown(world: World) -> None:
    with pytest.raises(StreamUnknown):
        Catalogues(world.store).read(STREAM)
    assert not Catalogues(world.store).look(STREAM).slots


def test_what_others_write_is_seen(world: World) -> None:
    reader = Catalogues(world.store)
    world.deployed()
    assert reader.read(STREAM).newest_generation is None
    started = world.started()
    assert reader.read(STREAM).newest_generation == started


def test_a_stream_that_was_removed_and_deployed_anew_is_not_mistaken_for_the_old_one(world: World) -> None:
    reader = Catalogues(world.store)
    world.deployed()
    world.started()
    assert reader.read(STREAM).newest_generation is not None
    shutil.rmtree(world.root)
    world.make_root()
    world.deployed(parallelism__default="7")
    started = world.started(host="another")
    assert reader.read(STREAM).newest_generation == started
    deployed = reader.read(STREAM).deployed
    assert deployed is not None
    assert deployed.settings["parallelism.default"] == "7"


def test_claims_in_view_of_an_old_catalogue_fail(world: World) -> None:
    reader = Catalogues(world.store)
    world.deployed()
    old = reader.read(STREAM)
    started = world.started()
    with pytest.raises(SlotTaken):
        reader.claim(old, started)


def test_decisions_of_many_at_once_are_all_kept(world: World) -> None:
    world.deployed()
    readers = [Catalogues(world.store) for _ in range(4)]

    def decide(reader: Catalogues, who: int) -> None:
        for number in range(5):
            reader.decide(STREAM, Retired(by=f"{who}", reason=f"{number}", at_ms=0))

    threads = [threading.Thread(target=decide, args=(readers[who % 4], who)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [slot.record for slot in world.catalogue().decisions[1:]]
    assert len(records) == 40
    assert len({(record.by, record.reason) for record in records if isinstance(record, Retired)}) == 40


def test_the_names_of_streams_are_told_without_a_look_at_what_they_hold(world: World) -> None:
    reader = Catalogues(world.store)
    world.deployed()
    assert reader.names() == [STREAM]
    world.deployed(StreamName("payments"))
    (world.root / "streams" / ".DS_Store").mkdir()
    (world.root / "streams" / "a file").write_text("")
    assert reader.names() == [STREAM, "payments"]


def test_a_started_stream_is_in_the_fleet_at_once(world: World) -> None:
    control = world.control()
    assert control.fleet() == []
    world.deployed()
    world.started()
    world.beat()
    assert [status.stream for status in control.fleet()] == [STREAM]
    assert control.fleet(["returns"]) == []
