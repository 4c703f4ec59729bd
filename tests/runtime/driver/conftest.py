"""No life outlasts its test: it would go on beside all that come later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.driver.life_world import Running


@pytest.fixture(autouse=True)
def _no_life_goes_on() -> Iterator[None]:
    """A test that fails leaves its lives behind."""
    yield
    left = [one for one in Running.begun if not one.is_over]
    Running.begun.clear()
    for one in left:
        one.world.faults.act = lambda call: None
        one.world.faults.refused.clear()
        one.life.ask_to_stop("the test is over")
    for one in left:
        one.wait()
