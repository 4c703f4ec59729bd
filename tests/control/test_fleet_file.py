"""streams.yaml: what it may say, how its errors read, and where it drifted from what is deployed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.errors import BadConfiguration, NotFound
from headgate_control.fleet_file import FleetFile, drift, load_fleet
from tests.control.world import World

Load = Callable[[str], FleetFile]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str) -> FleetFile:
        path = tmp_path / "streams.yaml"
        path.write_text(text)
        return load_fleet(path)

    return write_and_load


def test_a_whole_file(load: Load, tmp_path: Path) -> None:
    fleet = load(
        """
        root: s3://bucket/headgate
        streams:
          orders:
            job: jobs/orders.py
            savepoint: "0 3 * * *"
            settings:
              execution.checkpointing.interval: 10 s
              state: {backend: rocksdb}
              headgate.fall-back: yes
          payments: {job: /srv/payments.py, root: file:///srv/hg, directory: ..}
        """
    )
    orders, payments = fleet.stream("orders"), fleet.stream("payments")
    assert orders.job == tmp_path / "jobs/orders.py"
    assert (orders.root, orders.directory, orders.savepoint) == ("s3://bucket/headgate", tmp_path, "0 3 * * *")
    assert orders.settings == {
        "execution.checkpointing.interval": "10 s",
        "headgate.fall-back": "true",
        "headgate.savepoint.cron": "0 3 * * *",
        "state.backend.type": "rocksdb",
    }
    assert (payments.root, payments.job) == ("file:///srv/hg", Path("/srv/payments.py"))
    assert (payments.directory, payments.settings) == (tmp_path.parent, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("streams: [orders]", ["streams", "mapping"]),
        ("streams: {orders: {job: a.py, settings: {heartbeat.interval: 1:30}}}", ["1:30", "put it in quotes"]),
        ("streams: {orders: {job: a.py, settings: {heartbeat.interval: 1:30.5}}}", ["1:30.5", "put it in quotes"]),
        ("streams: {orders: {job: a.py, settings: {parallelism.default: 010}}}", ["010", "put it in quotes"]),
        ("streams:\n  ? [a, b]\n  : {job: a.py}", ["['a', 'b'] is no key"]),
        ("stream: {}", ["unknown key 'stream'", "did you mean 'streams'"]),
        ("streams: {orders: {}}", ["stream orders", "has no job"]),
        ("streams: {orders: {job: 7}}", ["stream orders", "job", "7"]),
        ("streams: {orders: {job: a.py, setting: {}}}", ["stream orders", "'setting'", "did you mean 'settings'"]),
        ("streams: {'or ders': {job: a.py}}", ["stream or ders", "not a valid stream name"]),
        ("streams: {no: {job: a.py}}", ["False", "quotes"]),
        (
            "streams: {orders: {job: a.py, settings: {execution.checkpointing.intervall: 1 s}}}",
            ["stream orders", "'execution.checkpointing.intervall'", "did you mean 'execution.checkpointing.interval'"],
        ),
        (
            "streams: {orders: {job: a.py, settings: {heartbeat.interval: 1 week}}}",
            ["stream orders", "heartbeat.interval", "'1 week'", "10 s"],
        ),
        (
            "streams: {orders: {job: a.py, settings: {state.backend.type: rocks}}}",
            ["stream orders", "state.backend.type", "'rocks'", "hashmap, rocksdb"],
        ),
        ("streams: {orders: {job: a.py, settings: {heartbeat.interval: }}}", ["heartbeat.interval has no value"]),
        ("streams: {orders: {job: a.py, settings: {a: [1]}}}", ["a has a list"]),
        (
            "streams: {orders: {job: a.py, settings: {heartbeat.interval: 1 s, heartbeat: {interval: 2 s}}}}",
            ["heartbeat.interval is there twice"],
        ),
        ("streams: {orders: {job: a.py}, orders: {job: b.py}}", ["the key 'orders' is there twice"]),
        ("streams: {orders: {job: a.py, savepoint: 61 * * * *}}", ["stream orders", "'61' is not a minute"]),
        (
            "streams: {orders: {job: a.py, savepoint: 0 * * * *, settings: {headgate.savepoint.cron: 1 * * * *}}}",
            ["stream orders", "both"],
        ),
        ("streams: {orders: {job: a.py", ["is not YAML"]),
        ("", ["streams.yaml", "mapping"]),
    ],
)
def test_errors_name_stream_key_value_and_what_is_allowed(load: Load, text: str, said: list[str]) -> None:
    with pytest.raises(BadConfiguration) as raised:
        load(text)
    for part in ("streams.yaml", *said):
        assert part in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"streams\.yaml cannot be read: No such file"):
        load_fleet(tmp_path / "streams.yaml")


def test_a_stream_that_is_not_in_it_names_the_nearest(load: Load) -> None:
    with pytest.raises(NotFound, match="did you mean orders"):
        load("streams: {orders: {job: a.py}}").stream("order")


class TestDrift:
    def declared(self, load: Load, *settings: str) -> FleetFile:
        lines = "".join(f"\n      {line}" for line in settings)
        return load(f"streams:\n  orders:\n    job: job.py\n    settings:{lines or ' {}'}\n")

    def test_nothing_deployed_is_a_drift(self, load: Load) -> None:
        assert [found.key for found in drift(self.declared(load).stream("orders"), None)] == ["job"]

    def test_equal_sides_have_none(self, world: World, load: Load) -> None:
        deployed = world.deployed()
        lines = [f"{key}: '{value}'" for key, value in deployed.settings.items()]
        assert drift(self.declared(load, *lines).stream("orders"), deployed) == ()

    def test_every_differing_key_is_named_with_both_values(self, world: World, load: Load) -> None:
        deployed = world.deployed()
        lines = [f"{key}: '{value}'" for key, value in deployed.settings.items() if key != "heartbeat.timeout"]
        lines = [line.replace("50 ms", "60 ms") for line in lines]
        found = drift(self.declared(load, *lines).stream("orders"), deployed)
        assert [str(one) for one in found] == [
            "heartbeat.interval: '60 ms' in the file, '50 ms' deployed",
            "heartbeat.timeout: not set in the file, '600 ms' deployed",
        ]

    def test_a_job_file_that_was_edited_since_is_a_drift(self, world: World, load: Load) -> None:
        deployed = world.deployed()
        world.write_job("# edited\n")
        lines = [f"{key}: '{value}'" for key, value in deployed.settings.items()]
        found = drift(self.declared(load, *lines).stream("orders"), deployed)
        assert [one.key for one in found] == ["job content (sha256)"]
