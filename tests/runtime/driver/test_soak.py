"""However long a stream has lived, it holds what it held in the beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.driver.soak import Holds, Soak


@pytest.mark.parametrize(
    ("restarts", "each"),
    [
        pytest.param(8, 9, id="short"),
        pytest.param(500, 9, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
    ],
)
def test_after_many_checkpoints_and_restarts_there_is_no_more_of_anything_than_before(
    tmp_path: Path, restarts: int, each: int
) -> None:
    """Two stretches alike: what a checkpoint of the second adds to the log is what one of the first did, and of all
    else there is no more. How many there are depends on the machine: one more may note what is published."""
    soak = Soak(tmp_path)
    begin = soak.run(3, each)
    half = soak.run(restarts, each)
    end = soak.run(restarts, each)
    soak.stop()
    told = "\n".join(map(str, (begin, half, end)))
    print(told)
    assert end.checkpoints >= 2 * restarts * (each + 1), told
    assert not_more(begin, end), told
    first, second = half.growing - begin.growing, end.growing - half.growing
    more = (end.checkpoints - half.checkpoints) / (half.checkpoints - begin.checkpoints)
    assert second < 1.3 * more * first + 20_000, told


def not_more(begin: Holds, end: Holds) -> bool:
    """The list of files that were read is in some more pieces; what is just coming or going is let pass."""
    return (
        end.descriptors <= begin.descriptors + 8
        and end.threads <= begin.threads + 4
        and end.work <= begin.work + 8
        and end.stream <= begin.stream + 20
    )
