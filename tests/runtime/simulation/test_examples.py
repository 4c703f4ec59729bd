"""The examples of docs/testing.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(number: int) -> None:
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
    assert all("assert " in example for example in EXAMPLES)
