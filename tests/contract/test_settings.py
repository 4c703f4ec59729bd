"""A stream's settings: Flink's keys, checked once; nothing that a person typed is silently ignored."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate_contract.durations import Duration
from headgate_contract.errors import BadConfiguration, UnknownKey
from headgate_contract.options import OPTIONS
from headgate_contract.settings import Settings
from tests.contract.profiles import PROPERTY

DEPRECATED = [(old, option.key) for option in OPTIONS for old in option.deprecated]
VALUES: dict[str, Any] = {
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.num-retained": "3",
    "execution.checkpointing.savepoint-dir": "s3://bucket/savepoints",
    "headgate.snapshot.allowed-dirs": "/mnt/one; s3://bucket/two/",
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "30 s",
    "state.backend.type": "rocksdb",
    "restart-strategy.type": "fixed-delay",
}


def test_without_any_settings_there_are_defaults_and_checkpointing_is_off() -> None:
    settings = Settings({})
    assert settings["execution.checkpointing.interval"] is None
    assert settings["state.backend.type"] == "hashmap"
    assert settings["heartbeat.interval"] == Duration(2000)
    assert settings.given == {}
    assert settings.spark == {}
    assert {key: settings[key] for key in settings} == dict(settings)
    assert len(settings) == len(OPTIONS)


def test_every_option_has_a_key_of_its_own_a_text_and_a_default_that_it_accepts_itself() -> None:
    keys = [key for option in OPTIONS for key in (option.key, *option.deprecated)]
    assert len(keys) == len(set(keys))
    for option in OPTIONS:
        assert option.about.endswith("."), option.key
        if option.default is not None:
            assert option.parse(str(option.default), option.key) == option.default
            assert Settings({option.key: option.default})[option.key] == option.default


def test_values_are_parsed_and_kept_as_text() -> None:
    settings = Settings(
        {
            "execution.checkpointing.interval": " 10 s",
            "parallelism.default": 4,
            "headgate.fall-back": True,
            "spark.x": 1.5,
        }
    )
    assert settings["execution.checkpointing.interval"] == Duration(10_000)
    assert settings["headgate.fall-back"] is True
    assert settings.given == {
        "execution.checkpointing.interval": " 10 s",
        "headgate.fall-back": "true",
        "parallelism.default": "4",
        "spark.x": "1.5",
    }


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "nearest"),
        [
            ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
            ("execution.checkpoint.timeout", "execution.checkpointing.timeout"),
            ("state.backend.typ", "state.backend.type"),
            ("heartbeat.timout", "heartbeat.timeout"),
            ("interval", "execution.checkpointing.interval"),
            ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        ],
    )
    def test_an_unknown_key_names_the_nearest_known_one(self, key: str, nearest: str) -> None:
        with pytest.raises(UnknownKey, match=rf"unknown setting '{key}'; did you mean '{nearest}'\?"):
            Settings({key: "1"})

    def test_a_key_like_no_other_says_where_the_list_is(self) -> None:
        with pytest.raises(UnknownKey, match=r"unknown setting 'xyzzy'; docs/operations\.md lists the settings"):
            Settings({"xyzzy": 1})

    @pytest.mark.parametrize("key", ["state.checkpoints.dir", "execution.checkpointing.dir"])
    def test_flinks_folders_say_where_snapshots_are_kept_here(self, key: str) -> None:
        with pytest.raises(UnknownKey, match=r"snapshots are kept below the storage root \(--root\)"):
            Settings({key: "file:///x"})

    @pytest.mark.parametrize(("old", "current"), DEPRECATED)
    def test_a_deprecated_name_means_the_current_one(self, old: str, current: str) -> None:
        by_old, by_current = Settings({old: VALUES[current]}), Settings({current: VALUES[current]})
        assert by_old[current] == by_current[current]
        assert by_old.given == by_current.given == {current: VALUES[current]}

    @pytest.mark.parametrize(("old", "current"), DEPRECATED)
    def test_both_names_at_once_are_an_error_whichever_comes_first(self, old: str, current: str) -> None:
        for keys in ((old, current), (current, old)):
            with pytest.raises(BadConfiguration, match=f"{keys[0]} and {keys[1]} are the same setting; keep {current}"):
                Settings(dict.fromkeys(keys, VALUES[current]))

    @pytest.mark.parametrize(("old", "current"), DEPRECATED)
    def test_a_wrong_value_is_told_under_the_name_that_was_typed(self, old: str, current: str) -> None:
        with pytest.raises(BadConfiguration, match=f"^{old}: 'sideways' "):
            Settings({old: "sideways"})

    def test_a_key_that_does_not_exist_cannot_be_read(self) -> None:
        with pytest.raises(KeyError):
            Settings({})["no.such.key"]

    def test_a_key_that_is_no_text_is_unknown(self) -> None:
        with pytest.raises(UnknownKey, match="unknown setting '1'"):
            Settings({1: "x"})  # type: ignore[dict-item]


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "says"),
        [
            ("execution.checkpointing.interval", "0", "a duration of 0 is not allowed"),
            ("execution.checkpointing.interval", "soon", "'soon' is not a duration"),
            ("execution.checkpointing.num-retained", "0", "0 is not allowed; it is between 1 and 10000"),
            ("execution.checkpointing.num-retained", "two", "'two' is not a whole number"),
            ("execution.checkpointing.num-retained", True, "True is not a whole number"),
            ("execution.checkpointing.num-retained", 1.5, "1.5 is not a whole number"),
            ("state.backend.type", "rocksbd", "did you mean 'rocksdb'? allowed are hashmap, rocksdb"),
            ("state.backend.type", "memory", "'memory' is not allowed; allowed are hashmap, rocksdb"),
            (
                "restart-strategy.exponential-delay.jitter-factor",
                "1.5",
                "1.5 is not allowed; it is between 0.0 and 1.0",
            ),
            ("restart-strategy.exponential-delay.jitter-factor", "nan", "nan is not allowed"),
            ("restart-strategy.exponential-delay.jitter-factor", "some", "'some' is not a number"),
            ("headgate.fall-back", "yes", "'yes' is neither true nor false"),
            ("headgate.log.max-size", "big", "'big' is not a size"),
            ("headgate.savepoint.cron", "* * *", "has 3 fields"),
            ("headgate.savepoint.cron", "", "'' is not a text"),
            ("headgate.work-dir", " ", "' ' is not a text"),
            ("headgate.work-dir", None, "None is not a text"),
            ("spark.executor.memory", None, "None is neither a text nor a number"),
            ("spark.jars", ["a", "b"], "is neither a text nor a number"),
        ],
    )
    def test_a_wrong_value_is_named_with_its_key(self, key: str, value: object, says: str) -> None:
        with pytest.raises(BadConfiguration) as caught:
            Settings({key: value})
        assert str(caught.value).startswith(f"{key}: ")
        assert says in str(caught.value)

    @pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "exactly_once", "exactly-once", "Exactly-Once"])
    def test_choices_are_taken_as_flink_users_write_them(self, mode: str) -> None:
        assert Settings({"execution.checkpointing.mode": mode})["execution.checkpointing.mode"] == "EXACTLY_ONCE"

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"heartbeat.interval": "20 s"}, r"heartbeat\.timeout \(20 s\) is not above heartbeat\.interval \(20 s\)"),
            ({"parallelism.default": 200}, r"parallelism\.default \(200\) is above pipeline\.max-parallelism \(128\)"),
            (
                {"execution.checkpointing.unaligned.enabled": "true", "execution.checkpointing.mode": "AT_LEAST_ONCE"},
                r"unaligned\.enabled needs execution\.checkpointing\.mode EXACTLY_ONCE",
            ),
            (
                {
                    "execution.checkpointing.unaligned": "true",
                    "execution.checkpointing.max-concurrent-checkpoints": 2,
                },
                r"allows one checkpoint at a time, max-concurrent-checkpoints is 2",
            ),
            (
                {"restart-strategy.exponential-delay.initial-backoff": "2 min"},
                r"initial-backoff \(2 min\) is above max-backoff \(1 min\)",
            ),
        ],
    )
    def test_values_that_contradict_each_other_are_told(self, given: dict[str, object], says: str) -> None:
        with pytest.raises(BadConfiguration, match=says):
            Settings(given)

    def test_sparks_own_settings_pass_through_but_for_those_that_are_ours(self) -> None:
        settings = Settings({"spark.master": "local[1]", "spark.sql.shuffle.partitions": 4, "spark.ui.enabled": False})
        assert settings["spark.master"] == "local[1]"
        assert settings.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
        assert settings["spark.ui.enabled"] == "false"
        assert "spark.ui.enabled" in settings

    @PROPERTY
    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "execution.checkpointing.interval": st.integers(1, 10**9).map(Duration),
                "execution.checkpointing.timeout": st.integers(1, 10**9).map(lambda ms: f"{ms} ms"),
                "parallelism.default": st.integers(1, 128),
                "headgate.fall-back": st.booleans(),
                "restart-strategy.exponential-delay.jitter-factor": st.floats(0, 1),
                "headgate.log.max-size": st.integers(0, 2**40),
                "spark.x": st.text(max_size=5) | st.booleans() | st.integers(),
            },
        )
    )
    def test_what_is_stored_means_the_same_when_it_is_read(self, given: dict[str, object]) -> None:
        settings = Settings(given)
        stored = Settings(settings.given)
        assert dict(stored) == dict(settings)
        assert stored.given == settings.given
