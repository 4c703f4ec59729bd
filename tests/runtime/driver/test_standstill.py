"""What stands still, by a clock that goes as the test says."""

from __future__ import annotations

import pytest

from headgate.driver.standstill import Standstills, Still
from headgate.driver.under_way import Part, Remedy, Sign, UnderWay, WatchedThreads

ALLOWED = {"a-minute": 60_000, "never": 0}
QUERY = Part("the query has been looking", "a-minute", Remedy.RESTART)
FOREVER = Part("the upload has been under way", "never", Remedy.RESTART)
FIXED = Part("the life has been ending", "", Remedy.REPLACE, 3_000)


class Looking:
    """Looks once a second; two seconds between two looks are believed at the most."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.under_way = UnderWay()
        self.standstills = Standstills(ALLOWED.__getitem__, 2_000)

    def look(self, after_ms: int = 1_000) -> list[Still]:
        self.now_ms += after_ms
        return self.standstills.look(self.now_ms, self.under_way.now())

    def overdue_after(self, looks: int, after_ms: int = 1_000) -> list[int]:
        """At which of so many looks something was overdue."""
        return [number for number in range(1, looks + 1) if any(each.overdue for each in self.look(after_ms))]


@pytest.fixture
def looking() -> Looking:
    found = Looking()
    found.look()
    return found


def test_a_part_that_gives_the_same_sign_for_longer_than_it_may_is_overdue(looking: Looking) -> None:
    looking.under_way.saw(QUERY, 7)
    assert looking.overdue_after(62) == [61, 62], "the first look only makes its acquaintance"
    (still,) = looking.look()
    assert str(still.told) == "the query has been looking for 62 s (a-minute allows 1 min)"


def test_a_part_that_moves_is_not_overdue_however_seldom_it_does(looking: Looking) -> None:
    for sign in range(10):
        looking.under_way.saw(QUERY, sign)
        assert looking.overdue_after(59) == []


def test_an_idle_part_never_stands_still(looking: Looking) -> None:
    looking.under_way.saw(QUERY, 7)
    looking.look()
    looking.under_way.saw(QUERY, None)
    assert looking.overdue_after(1_000) == []
    looking.under_way.saw(QUERY, 7)  # the very sign of before: it begins anew all the same
    assert looking.overdue_after(60) == []


def test_each_piece_of_work_has_its_own_time(looking: Looking) -> None:
    for _ in range(5):
        with looking.under_way.during(QUERY):
            assert looking.overdue_after(50) == []
    assert looking.look() == []


def test_work_that_fails_is_not_under_way_any_more(looking: Looking) -> None:
    with pytest.raises(ValueError, match="no"), looking.under_way.during(QUERY):
        raise ValueError("no")
    assert looking.look() == []


@pytest.mark.parametrize("jump_ms", [10_000_000, -10_000_000], ids=["slept", "set back"])
def test_a_clock_that_jumps_says_nothing_of_the_parts(looking: Looking, jump_ms: int) -> None:
    looking.under_way.saw(QUERY, 7)
    looking.look()
    looking.look(jump_ms)
    (still,) = looking.look()
    assert still.for_ms <= 3_000


def test_a_watcher_that_comes_to_look_seldom_believes_little(looking: Looking) -> None:
    """On a host so loaded that a thread is let run every ten seconds, the others are not let run either."""
    looking.under_way.saw(QUERY, 7)
    assert looking.overdue_after(30, after_ms=10_000) == []
    assert looking.overdue_after(1, after_ms=10_000) == [1]


def test_what_may_take_as_long_as_it_likes_is_shown_and_never_overdue(looking: Looking) -> None:
    looking.under_way.saw(FOREVER, 7)
    assert looking.overdue_after(100_000) == []
    (still,) = looking.look()
    assert still.notable
    assert str(still.told) == "the upload has been under way for 100000 s (never allows any time)"


def test_people_are_shown_what_stands_still_from_a_tenth_of_its_time_on(looking: Looking) -> None:
    looking.under_way.saw(QUERY, 7)
    shown = [any(each.notable for each in looking.look()) for _ in range(8)]
    assert shown == [False] * 6 + [True] * 2


def test_the_part_that_is_nearest_to_its_end_is_told_first(looking: Looking) -> None:
    looking.under_way.saw(FOREVER, 1)
    looking.under_way.saw(QUERY, 1)
    looking.overdue_after(30)
    looking.under_way.saw(FIXED, 1)
    looking.overdue_after(3)
    assert [each.part for each in looking.look()] == [FIXED, QUERY, FOREVER]


def test_who_is_asked_is_not_asked_any_more_behind_it(looking: Looking) -> None:
    rounds = iter([1, 1, None])
    with looking.under_way.asking(QUERY, lambda: next(rounds)):
        assert [len(looking.look()) for _ in range(3)] == [1, 1, 0]
    assert looking.look() == []


def test_what_watched_threads_do_is_under_way_and_what_waits_for_them_is_not() -> None:
    under_way = UnderWay()
    threads = WatchedThreads("ledger", under_way, QUERY)
    seen: list[list[Sign]] = []
    threads.submit(lambda: seen.append(under_way.now()))
    threads.submit(lambda: seen.append(under_way.now()))
    threads.shutdown(wait=True)
    assert [[sign.part for sign in signs] for signs in seen] == [[QUERY], [QUERY]]
    assert seen[0] != seen[1]
    assert under_way.now() == []
