"""streams.yaml: what it may say, how its errors read, and where it drifted from what is deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.errors import BadConfiguration, NotFound
from headgate_contract.ids import StreamName
from headgate_control.fleet_file import FleetFile, drift
from headgate_control.fleet_reading import load_fleet, load_settings, read_fleet
from tests.control.command_line import Cli
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
        ("streams:\n  ? [a, b]\n  : {job: a.py}", ["what names this stream is no text"]),
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
    with pytest.raises(BadConfiguration, match=r"streams\.yaml: cannot be read: No such file"):
        load_fleet(tmp_path / "streams.yaml")


def test_a_stream_that_is_not_in_it_names_the_nearest(load: Load) -> None:
    with pytest.raises(NotFound, match="did you mean orders"):
        load("streams: {orders: {job: a.py}}").stream("order")


MANY_MISTAKES = """\
root: /srv/headgate
streams:
  good: {job: a.py}
  cron:
    job: a.py
    savepoint: "61 * * * *"
  seconds: {job: a.py, savepoint: "30 0 3 * * ?"}
  several:
    setting: {}
    root: data/root
    settings:
      heartbeat:
        interval: 1:30
        timeout: 5 parsecs
      state.backend.type: heap
  no: {job: a.py}
  loop: &loop
    job: a.py
    settings: *loop
  other: {job: b.py, root: s3://bucket/x}
"""


def test_a_mistake_leaves_its_stream_out_and_no_other_and_each_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(MANY_MISTAKES)
    found = read_fleet(path)
    assert list(found.streams) == ["good", "other"]
    assert found.roots == ("/srv/headgate", "s3://bucket/x")
    assert [(mistake.stream, mistake.line) for mistake in found.mistakes] == [
        ("cron", 6),
        ("seconds", 7),
        ("several", 8),
        ("several", 9),
        ("several", 10),
        ("several", 13),
        ("several", 14),
        ("several", 15),
        ("no", 16),
        ("loop", 17),
    ]
    with pytest.raises(BadConfiguration, match=r"streams.yaml:6: stream cron: .* '61' is not a minute"):
        found.stream("cron")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root: data/root\nstreams: {a: {job: a.py}, b: {job: b.py, root: /srv/b}}", "is not absolute"),
        ("rot: /srv\nstreams: {b: {job: b.py, root: /srv/b}}", "unknown key 'rot'"),
        ("streams: {a: {job: a.py}, a: {job: c.py}, b: {job: b.py, root: /srv/b}}", "'a' is there twice"),
    ],
)
def test_what_is_wrong_above_the_streams_leaves_out_those_that_it_concerns(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    found = read_fleet(path)
    assert found.is_read
    assert list(found.streams) == ["b"]
    assert said in found.mistakes[0].what


@pytest.mark.parametrize(
    "text",
    ["root: /srv/x\nstreams:\n  a: {job: b.py\n  c: 1\n", "root: /srv/x\n\tstreams: {}", "root: /srv/x\nstreams: [a]"],
)
def test_of_a_file_that_cannot_be_read_the_roots_are_still_known(tmp_path: Path, text: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    found = read_fleet(path)
    assert not found.is_read
    assert found.roots == ("/srv/x",)
    assert found.mistakes


@pytest.mark.parametrize(
    "text", ["a: &x [*x]", "a: &x {b: *x}", "streams: &x {a: {<<: *x}}", "[" * 5000, "streams: {a: {job: 2020-99-99}}"]
)
def test_nothing_that_yaml_can_say_ends_in_another_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    assert read_fleet(path).mistakes
    with pytest.raises(BadConfiguration):
        load_settings(path)


@pytest.mark.parametrize("name", ["bad name", "12", "no", "~", "2020-01-01", "[a, b]", "ok: {job: ok.py}\n  ok"])
def test_a_stream_with_a_wrong_name_is_told_its_other_mistakes_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / "streams.yaml"
    entry = "\n    jbo: a.py\n    root: /srv/bad\n    savepoint: 61 * * * *\n    settings: {heartbeat.interval: soon}\n"
    path.write_text(f"streams:\n  good: {{job: a.py, root: /srv/good}}\n  {name}:{entry}")
    found = read_fleet(path)
    assert list(found.streams) == ["good"]
    assert found.located == {"good": "/srv/good"}
    assert found.roots == ("/srv/good", "/srv/bad")
    told = " | ".join(mistake.what for mistake in found.mistakes[1:])
    assert [part in told for part in ("unknown key 'jbo'", "has no job", "'soon'", "61")] == [True] * 4, told


def test_what_streams_share_can_be_written_once(load: Load) -> None:
    fleet = load("""
        streams:
          a: &a {job: a.py, settings: {heartbeat.interval: 1 s}}
          b: {<<: *a, job: b.py}
        """)
    assert fleet.stream("b").settings == {"heartbeat.interval": "1 s"}
    assert fleet.stream("b").job.name == "b.py"


class TestIgnore:
    def test_streams_and_roots_that_are_none_of_the_fleets_business(self, load: Load) -> None:
        fleet = load("root: /srv/a\nstreams: {a: {job: a.py}}\nignore: [theirs, /srv/old/, 's3://bucket/old']")
        assert fleet.ignored == {"theirs"}
        assert fleet.ignored_roots == {"file:///srv/old", "s3://bucket/old"}
        assert load("streams: {}\nignore:").ignored == set()

    @pytest.mark.parametrize(
        ("ignore", "said"),
        [
            ("theirs", "ignore should be a list"),
            ("[a]", "stream a is declared, and among those to ignore"),
            ("[not a name]", "not a valid stream name"),
            ("[12]", "ignore should be a text, not 12"),
            ("[old/root]", "is not absolute"),
            ("[/srv/a]", "the root file:///srv/a is named for streams, and among what to ignore"),
        ],
    )
    def test_what_cannot_be_meant_is_told_and_ignores_nothing(self, tmp_path: Path, ignore: str, said: str) -> None:
        path = tmp_path / "streams.yaml"
        path.write_text(f"streams:\n  a: {{job: a.py, root: /srv/a}}\nignore: {ignore}\n")
        found = read_fleet(path)
        assert (list(found.streams), found.ignored, found.ignored_roots) == (["a"], set(), set())
        assert [mistake.line for mistake in found.mistakes] == [3]
        assert said in str(found.mistakes[0].at(path))


class TestValidate:
    def test_every_mistake_is_told_with_its_line_and_the_exit_code_says_so(self, world: World, cli: Cli) -> None:
        (world.folder / "streams.yaml").write_text(MANY_MISTAKES)
        said = cli("validate", "streams.yaml")
        assert said.code == 2
        assert f"{world.folder}/streams.yaml:13: stream several: heartbeat.interval: YAML reads 1:30" in said.err
        assert f"if {world.folder}/data/root is meant, write that" in said.err
        assert "stream good: the job file" in said.err
        assert [each["line"] for each in cli("validate", "streams.yaml", "--json").json["mistakes"]][:2] == [6, 7]

    def test_a_good_file_is_said_to_be_good(self, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        (world.folder / "streams.yaml").write_text("streams: {orders: {job: job.py}}")
        monkeypatch.setenv("HEADGATE_FLEET", "streams.yaml")
        said = cli("validate")
        assert (said.code, said.out, said.err) == (0, f"{world.folder}/streams.yaml: 1 stream, no mistake\n", "")

    def test_no_file_is_bad_input(self, world: World, cli: Cli) -> None:
        assert cli("validate").code == 2
        assert cli("validate", "nowhere.yaml").code == 2


class TestStatus:
    def test_it_tells_of_mistakes_and_of_what_is_at_work_and_not_declared(
        self, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [StreamName(name) for name in ("declared", "left", "at-rest", "typo")]
        for name in names:
            world.deployed(name)
        for name in ("declared", "left", "typo"):
            world.started(stream=StreamName(name))
            world.beat(stream=StreamName(name))
        file = world.folder / "streams.yaml"
        file.write_text("streams: {declared: {job: job.py}, typo: {job: job.py, savepoint: daily}}")
        said = cli("status", "--fleet", "streams.yaml")
        assert said.code == 0
        assert [line.partition(" ")[2][:40] for line in said.err.splitlines()] == [
            f"{file}:1: stream typo"[:40],
            "stream left is not declared in " + str(file)[:9],
            "stream declared runs otherwise than " + str(file)[:4],
        ]
        assert cli("status").err == ""
        monkeypatch.setenv("HEADGATE_FLEET", "streams.yaml")
        assert "stream left is not declared" in cli("status").err
        assert cli("status", "typo").code == 0, "a mistake keeps nobody from looking"
        assert cli("deploy", "typo").code == 2
        file.write_text(f"root: {world.root}\nstreams: {{")
        monkeypatch.delenv("HEADGATE_ROOT")
        said = cli("status")
        assert said.code == 0, "the root is told by a line of it"
        assert "is not YAML" in said.err


class TestRunningOtherwise:
    """`status --fleet` compares what runs, and not only what is deployed, with the file."""

    def declared(self, world: World, **settings: str) -> None:
        world.deployed(heartbeat__interval="50 ms", parallelism__default="2")
        world.started()
        world.beat()
        now = world.catalogue().deployed
        assert now is not None
        about = {"job": "job.py", "settings": {**now.settings, **settings}}
        (world.folder / "streams.yaml").write_text(json.dumps({"streams": {"orders": about}}))

    def test_what_differs_is_named_with_both_values_and_what_to_do(self, world: World, cli: Cli) -> None:
        self.declared(world, **{"parallelism.default": "3"})
        differs = "parallelism.default: '3' in the file, '2' running"
        for said in (cli("status", "--fleet", "streams.yaml"), cli("status", "orders", "--fleet", "streams.yaml")):
            assert f"stream orders runs otherwise than {world.folder}/streams.yaml says: {differs}: " in said.err
            assert "`headgate deploy orders --fleet" in said.err
        world.deployed(heartbeat__interval="50 ms", parallelism__default="3")
        said = cli("status", "--fleet", "streams.yaml")
        assert f"{differs}: `headgate stop orders --savepoint`, `headgate start orders`" in said.err
        assert "headgate deploy" not in said.err
        world.stopped()
        assert cli("status", "--fleet", "streams.yaml").err == ""

    def test_programs_are_told_too(self, world: World, cli: Cli) -> None:
        self.declared(world, **{"parallelism.default": "3"})
        [one] = cli("status", "--fleet", "streams.yaml", "--json").json
        assert one["drift"] == [{"key": "parallelism.default", "declared": "3", "deployed": "2"}]
        assert (one["declared"], one["parallelism"]) == (True, 2)
        assert "drift" not in cli("status", "orders", "--json").json

    def test_no_secret_is_shown(self, world: World, cli: Cli) -> None:
        self.declared(world, **{"spark.hadoop.fs.s3a.secret.key": "hush", "spark.ssl.keyPassword": "quiet"})
        for arguments in (("status",), ("status", "--json"), ("status", "orders")):
            said = cli(*arguments, "--fleet", "streams.yaml").all
            assert "hush" not in said
            assert "quiet" not in said
            assert "spark.hadoop.fs.s3a.secret.key" in said


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
            "heartbeat.timeout: not set (20 s) in the file, '30 s' deployed",
        ]

    def test_what_only_is_written_otherwise_is_none(self, world: World, load: Load) -> None:
        deployed = world.deployed(execution__checkpointing__interval="1 min")
        settings = {**deployed.settings, "execution.checkpointing.interval": "60 s", "parallelism.default": "2"}
        lines = [f"{key}: '{value}'" for key, value in settings.items()]
        assert drift(self.declared(load, *lines).stream("orders"), deployed) == ()

    def test_a_job_file_that_was_edited_since_is_a_drift(self, world: World, load: Load) -> None:
        deployed = world.deployed()
        world.write_job("# edited\n")
        lines = [f"{key}: '{value}'" for key, value in deployed.settings.items()]
        found = drift(self.declared(load, *lines).stream("orders"), deployed)
        assert [one.key for one in found] == ["job content (sha256)"]
