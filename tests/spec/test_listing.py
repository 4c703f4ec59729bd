"""The listing of behaviours: what counts as covered, and what fails the run. Tried on small test runs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.small_run import SmallRun
from tests.spec.listing import PAGE, numbers_of
from tests.spec.table import read_table

A_PAGE = """
    | F1 | What is first. | |
    | F2 | What is second. | {why} |

    ## Numbers beyond these tables
    Tests carry these too: F10-F12, F20.
"""


@pytest.fixture
def small_run(tmp_path: Path) -> SmallRun:
    run = SmallRun(tmp_path)
    (tmp_path / "docs").mkdir()
    run.write("docs/behaviours.md", A_PAGE.format(why=""))
    return run


def test_the_page_has_every_behaviour_of_its_sections() -> None:
    table = read_table(PAGE)
    assert len(table.behaviours) == 119
    assert all(each.statement.endswith(".") for each in table.behaviours.values())
    assert table.beyond.isdisjoint(table.behaviours)
    assert all(table.knows(number) for number in (1, 67, 73, 89, 185, 202))
    assert not any(table.knows(number) for number in (4, 15, 113, 203))


def test_numbers_stand_in_the_name_and_in_the_docstring() -> None:
    def test_f44_f162_each_way() -> None:
        """F89: also this one, and F44."""

    def test_format_f5_is_read() -> None:
        """A test whose name has something like a number further on."""

    assert numbers_of(test_f44_f162_each_way) == (44, 89, 162)
    assert numbers_of(test_format_f5_is_read) == ()


@pytest.mark.e2e
def test_all_that_is_asked_for_is_listed_and_the_count_is_the_last_line(small_run: SmallRun) -> None:
    small_run.write(
        "tests/test_some.py",
        """
        def test_f1_f10_first(): pass

        def test_second():
            "F2: this way."

        def test_without_a_number(): assert False
        """,
    )
    shown = small_run.pytest("--spec")
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.splitlines()[-5:] == [
        "F1    What is first.",
        "      tests/test_some.py::test_f1_f10_first",
        "F2    What is second.",
        "      tests/test_some.py::test_second",
        "spec: 2 of 2 covered",
    ]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("why", "tests", "said"),
    [
        ("", "def test_f1_first(): pass", "spec: F2: covered by no test that passed"),
        ("open", "def test_f1_first(): pass", "spec: F2: covered by no test that passed"),
        ("it cannot be", "def test_f1_first(): pass", "spec: less than 90% is covered"),
        (
            "it cannot be",
            "def test_f1_f2_both(): pass",
            "spec: F2: covered, and docs/behaviours.md still says why not",
        ),
        ("", "def test_f1_f2_f3_both(): pass", "tests/test_some.py::test_f1_f2_f3_both: there is no F3"),
        ("", "def test_f1_f2_f10_f11_all(): pass", "tests/test_some.py::test_f1_f2_f10_f11_all: more than 3 numbers"),
        (
            "",
            "from pytest import mark, skip\n@mark.parametrize('x', [1, 2])\ndef test_f1_f2_both(x): x == 1 or skip()",
            "spec: F1, F2: covered by no test that passed",
        ),
    ],
)
def test_what_is_not_as_it_should_be_fails_the_run(small_run: SmallRun, why: str, tests: str, said: str) -> None:
    small_run.write("docs/behaviours.md", A_PAGE.format(why=why))
    (small_run.root / "tests/test_some.py").write_text(tests)
    shown = small_run.pytest("--spec", ci=False)
    assert shown.returncode == 1, shown.stdout
    assert said in shown.stdout


@pytest.mark.e2e
def test_several_runs_are_summed_up_and_what_none_of_them_covers_fails(small_run: SmallRun) -> None:
    small_run.write("tests/test_some.py", "def test_f1_first(): pass\n\ndef test_without_a_number(): pass\n")
    small_run.write("tests/test_others.py", "def test_f2_second(): pass\n")
    small_run.write("tests/test_bad.py", "def test_f2_also(): assert False\n")
    for name, code in (("some", 0), ("others", 0), ("bad", 1)):
        shown = small_run.pytest(f"tests/test_{name}.py", "--spec-notes", f"{name}.json")
        assert (shown.returncode, "spec:" in shown.stdout) == (code, False), shown.stdout
    both = small_run.python("-m", "tests.spec.listing", "some.json", "others.json")
    assert (both.returncode, both.stdout) == (0, "spec: 2 of 2 covered\n")
    for left in (["some.json"], ["some.json", "bad.json"]):
        shown = small_run.python("-m", "tests.spec.listing", *left)
        assert shown.returncode == 1, shown.stdout
        last = shown.stdout.splitlines()
        assert last[:2] == ["F2    What is second.", "      not covered: no test that covers it passed"]
        assert last[-1] == "spec: 1 of 2 covered"
        assert "What is first" not in shown.stdout
