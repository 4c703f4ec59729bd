"""The rate sources on Spark: the same records again from any position on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.source.rate import rate
from headgate.spark.readers import RateReader
from headgate_contract.errors import RestoreRefused
from tests.spark.sources.queries import Lives, rows_of

pytestmark = pytest.mark.spark


def test_batches_of_a_fixed_size_go_on_behind_any_position(lives: Lives):
    source = rate(rows_per_batch=50)
    with lives.life(RateReader(source, "numbers")) as query:
        taken = query.take(6)
    assert [value for _, value in rows_of(taken)] == list(range(300))
    for done in (1, 4):
        with lives.life(RateReader(replace(source, rows_per_second=7), "numbers"), taken[done - 1].snapshot) as query:
            again = query.take(6 - done)
        assert rows_of(again) == rows_of(taken[done:])


def test_another_rate_is_refused_since_its_position_means_other_records(lives: Lives):
    with lives.life(RateReader(rate(rows_per_second=20), "numbers")) as query:
        (taken,) = query.take(1)
    for other, told in ((rate(30), "30 rows a second"), (rate(rows_per_batch=20), "batches of fixed size")):
        with (
            pytest.raises(RestoreRefused, match=f"'numbers' made 20 rows a second in the snapshot and {told} in"),
            lives.life(RateReader(other, "numbers"), taken.snapshot),
        ):
            pass


def test_a_rate_goes_on_behind_its_position_with_the_same_moments(lives: Lives):
    source = rate(rows_per_second=20)
    with lives.life(RateReader(source, "numbers")) as query:
        first = query.take_rows(20)
        rest = query.take_rows(20)
    known = rows_of([*first, *rest])
    assert [value for _, value in known] == list(range(len(known)))
    with lives.life(RateReader(source, "numbers"), first[-1].snapshot) as query:
        again = rows_of(query.take_rows(len(rows_of(rest))))
    done = len(rows_of(first))
    assert again[: len(known) - done] == known[done:]
    assert [value for _, value in again] == list(range(done, done + len(again)))
