"""Durations, sizes and cron expressions, as a person writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import hypothesis.strategies as st
import pytest
from croniter import croniter
from hypothesis import example, given

from headgate_contract.cron import check_cron, five_fields
from headgate_contract.durations import Duration, parse_duration, parse_size
from headgate_contract.errors import BadConfiguration
from tests.contract.profiles import PROPERTY


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("10 s", 10_000),
            ("10s", 10_000),
            ("  500 MS ", 500),
            ("1 min", 60_000),
            ("5m", 300_000),
            ("2 hours", 7_200_000),
            ("1 day", 86_400_000),
            ("1500", 1500),
            (1500, 1500),
            ("PT10S", 10_000),
            ("pt1h30m", 5_400_000),
            ("PT1.001S", 1001),
            ("PT0.5S", 500),
            ("P1D", 86_400_000),
            ("P1DT1S", 86_401_000),
            ("0", 0),
        ],
    )
    def test_they_are_read_as_flink_reads_them(self, text: object, ms: int) -> None:
        assert parse_duration(text) == ms

    @pytest.mark.parametrize(
        "text",
        ["", "s", "-1 s", "1.5 s", "10 parsecs", "1 s 2", "P", "PT", "P1DT", "T1S", "PT1", "٣ s", -1, 1.5, True, None,
         [], "9" * 5000, "PT" + "9" * 400 + "H"],
    )  # fmt: skip
    def test_what_is_none_is_refused_by_the_name_of_the_setting(self, text: object) -> None:
        with pytest.raises(BadConfiguration, match=r"heartbeat\.interval: .* is not a duration; write it like '10 s'"):
            parse_duration(text, "heartbeat.interval")

    @PROPERTY
    @given(st.integers(0, 10**15 - 1).map(Duration))
    @example(Duration(0))
    @example(Duration(90_000))
    def test_what_is_printed_is_read_as_the_same(self, duration: Duration) -> None:
        assert parse_duration(str(duration)) == duration
        assert parse_duration(int(duration)) == duration
        assert duration.seconds == int(duration) / 1000

    @PROPERTY
    @given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 999), st.integers(0, 999_999))
    def test_iso_8601_counts_to_the_millisecond(self, days: int, hours: int, minutes: int, ms: int) -> None:
        text = f"P{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03d}S"
        assert parse_duration(text) == ((days * 24 + hours) * 60 + minutes) * 60_000 + ms

    @PROPERTY
    @given(st.text(max_size=10))
    def test_any_text_is_a_duration_or_refused(self, text: str) -> None:
        try:
            assert parse_duration(text) >= 0
        except BadConfiguration as error:
            assert error.exit_code == 2  # noqa: PT017


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("64 mb", 64 << 20),
            ("1g", 1 << 30),
            ("10 kibibytes", 10_240),
            ("5 B", 5),
            ("7", 7),
            (7, 7),
            ("2TB", 2 << 40),
        ],
    )
    def test_they_are_read_as_flink_reads_them(self, text: object, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "mb", "-1", "1.5 gb", "1 parsec", -1, True, None, "9" * 5000])
    def test_what_is_none_is_refused_by_the_name_of_the_setting(self, text: object) -> None:
        with pytest.raises(BadConfiguration, match=r"headgate\.log\.max-size: .* is not a size; write it like '64 mb'"):
            parse_size(text, "headgate.log.max-size")


# ---- cron


def items(low: int, high: int, names: list[str]) -> st.SearchStrategy[str]:
    """One item of a field in cron's grammar; numbers a little outside of the field are among them."""
    number = st.integers(max(0, low - 1), high + 2).map(str) | (st.sampled_from(names) if names else st.nothing())
    step = st.integers(0, high + 2).map(str)
    return st.one_of(
        st.just("*"),
        number,
        st.tuples(number, number).map("-".join),
        step.map("*/{}".format),
        st.tuples(number, step).map("/".join),
        st.tuples(number, number, step).map(lambda parts: f"{parts[0]}-{parts[1]}/{parts[2]}"),
    )


def fields(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    return st.lists(items(low, high, names or []), min_size=1, max_size=3).map(",".join)


MONTHS = ["JAN", "feb", "Dec"]
DAYS = ["SUN", "mon", "Sat"]
EXPRESSIONS = st.tuples(
    fields(0, 59), fields(0, 23), fields(1, 31) | st.just("?"), fields(1, 12, MONTHS), fields(0, 7, DAYS) | st.just("?")
).map(" ".join)


def accepts(text: str) -> bool:
    try:
        check_cron(text, "cron")
    except BadConfiguration:
        return False
    return True


NAMED = {"JAN": 1, "FEB": 2, "DEC": 12, "SUN": 0, "MON": 1, "SAT": 6}
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def goes_over_the_end(text: str) -> bool:
    """Whether it has a number outside of its field, a range over the field's end, or a step longer than the field.

    croniter takes most of them, each in its own way; we take none.
    """
    for part, (low, high) in zip(text.upper().split(), BOUNDS, strict=True):
        for item in part.split(","):
            span, _, step = item.partition("/")
            first, _, last = span.partition("-")
            ends = [NAMED.get(end, int(end) if end.isdecimal() else low) for end in (first, last or first)]
            if not low <= ends[0] <= ends[1] <= high or (step and int(step) > high - low + 1):
                return True
    return False


class TestCron:
    @PROPERTY
    @given(EXPRESSIONS)
    def test_we_accept_what_croniter_accepts_but_for_what_goes_over_the_end_of_a_field(self, text: str) -> None:
        if accepts(text):
            assert croniter.is_valid(text), "an accepted expression must be one for the scheduler"
        else:
            assert not croniter.is_valid(text) or goes_over_the_end(text)

    @PROPERTY
    @given(st.text(st.sampled_from("0123456789*/-,? ?JANSUN@L#W"), max_size=20))
    @example("@daily")
    @example("* * * * * *")
    @example("0 0 L * *")
    def test_nothing_is_accepted_that_croniter_refuses(self, text: str) -> None:
        if accepts(text) and len(text.split()) <= 5:
            assert croniter.is_valid(text)

    @pytest.mark.parametrize(
        "text",
        ["0 3 * * *", "*/15 * * * *", "0 0 1,15 * MON-FRI", "5/20 * * * *", "@hourly", "@midnight", "@annually",
         "0 0 3 * * ?", "0 0 3 ? * MON", "0 0 3 ? * 7 *", "0 0/5 * * * ? 2030-2040", "0 */24 * * *"],
    )  # fmt: skip
    def test_good_expressions_are_given_back(self, text: str) -> None:
        assert check_cron(text, "cron") == text

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "has 0 fields; a cron expression has 5, or with seconds 6, or with years 7"),
            ("*", "has 1 field;"),
            ("* * * *", "has 4 fields"),
            ("* * * * * * * *", "has 8 fields"),
            ("60 * * * *", "'60' is not a minute; it is between 0 and 59"),
            ("* 24 * * *", "'24' is not a hour; it is between 0 and 23"),
            ("* * 0 * *", "'0' is not a day of month; it is between 1 and 31"),
            ("* * * 13 *", "'13' is not a month; it is between 1 and 12"),
            ("* * * FOO *", "'FOO' is not a month"),
            ("* * * * 8", "'8' is not a day of week; it is between 0 and 7"),
            ("60 * * * * *", "'60' is not a second"),
            ("0 0 0 ? * 0", "'0' is not a day of week; it is between 1 and 7"),
            ("0 0 0 * * ? 1900", "'1900' is not a year"),
            ("*/90 * * * *", r"'\*/90' is not a minute.*a step is at most 60"),
            ("*/0 * * * *", r"'\*/0' is not a minute"),
            ("5-1 * * * *", "'5-1' is not a minute"),
            ("1,,2 * * * *", "'' is not a minute"),
            ("?  * * * *", r"'\?' is not a minute"),
            ("*-5 * * * *", r"'\*-5' is not a minute"),
            ("0 0 L * *", "'L' is not a day of month"),
            ("@reboot", "has 1 field"),
        ],
    )
    def test_the_field_that_is_wrong_is_named(self, text: str, says: str) -> None:
        with pytest.raises(BadConfiguration, match=rf"headgate\.savepoint\.cron: .*{says}"):
            check_cron(text, "headgate.savepoint.cron")


class TestFiveFields:
    @pytest.mark.parametrize(
        ("text", "five"),
        [
            ("0 3 * * MON", "0 3 * * MON"),
            ("@daily", "@daily"),
            ("0 0 3 ? * MON-FRI", "0 3 * * MON-FRI"),
            ("0 30 3 ? * 2", "30 3 * * 1"),
            ("0 30 3 ? * 1,7", "30 3 * * 0,6"),
            ("0 30 3 ? * 2-6", "30 3 * * 1-5"),
            ("0 30 3 ? * 2/2,7", "30 3 * * 1/2,6"),
            ("0 0 12 1 * ?", "0 12 1 * *"),
            ("0 0 12 1 * ? *", "0 12 1 * *"),
        ],
    )
    def test_seconds_and_years_that_say_nothing_are_dropped(self, text: str, five: str) -> None:
        assert five_fields(text) == five
        assert croniter.is_valid(five)

    @pytest.mark.parametrize("text", ["*/10 * * * * ?", "30 0 0 * * ?", "0 0 0 * * ? 2030"])
    def test_those_that_a_schedule_cannot_keep_are_refused(self, text: str) -> None:
        with pytest.raises(BadConfiguration, match="asks for seconds or years, which a schedule cannot keep"):
            five_fields(text, "cron")

    def test_quartz_and_cron_mean_the_same_days(self) -> None:
        """Sunday is 1 in Quartz and 0 in cron."""
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        for quartz, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], start=1):
            by_number = croniter(five_fields(f"0 0 0 ? * {quartz}"), begin).all_next(datetime)
            by_name = croniter(f"0 0 * * {name}", begin).all_next(datetime)
            assert list(islice(by_number, 3)) == list(islice(by_name, 3))
