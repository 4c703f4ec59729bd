"""The rules of a test run hold: tried on small test runs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.small_run import SmallRun

pytestmark = pytest.mark.e2e

A_PURE_TEST = """
    from package import sample

    def test_pure():
        assert sample.pick(True) == "yes"
"""


@pytest.fixture
def small_run(tmp_path: Path) -> SmallRun:
    return SmallRun(tmp_path)


def test_what_did_not_run_fails_the_run_in_ci_and_only_there(small_run: SmallRun) -> None:
    ways = {
        "test_skip": "import pytest\n\ndef test_it():\n    pytest.skip('later')\n",
        "test_expected": "import pytest\n\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
        "test_unexpected": "import pytest\n\n@pytest.mark.xfail\ndef test_it():\n    assert True\n",
        "test_module": "import pytest\n\npytest.importorskip('no_such_module')\n",
    }
    small_run.write("tests/test_pure.py", A_PURE_TEST)
    for name, body in ways.items():
        small_run.write(f"tests/{name}.py", body)

    assert small_run.pytest(ci=False).returncode == 0
    in_ci = small_run.pytest()
    assert in_ci.returncode == 1, in_ci.stdout
    _, _, named = in_ci.stdout.partition("not allowed in CI")
    assert [line.split(".py")[0] for line in sorted(named.splitlines()) if line.startswith("tests/")] == [
        f"tests/{name}" for name in sorted(ways)
    ]


def test_pure_tests_run_first_and_the_dearest_last(small_run: SmallRun) -> None:
    small_run.write(
        "tests/test_mixed.py",
        """
        import pytest

        @pytest.mark.e2e
        def test_story(): pass

        @pytest.mark.spark
        def test_spark(): pass

        def test_pure(): pass
        """,
    )
    shown = small_run.pytest("-v").stdout
    assert shown.index("test_pure") < shown.index("test_spark") < shown.index("test_story")


def test_coverage_counts_what_pure_tests_reach_and_nothing_else(small_run: SmallRun) -> None:
    small_run.write("tests/test_pure.py", A_PURE_TEST)
    small_run.write(
        "tests/test_dear.py",
        """
        import pytest

        @pytest.mark.spark
        def test_dear():
            from package import sample
            assert sample.pick(False) == "no"
        """,
    )
    small_run.write("tests/runtime/driver/test_lives.py", A_PURE_TEST.replace('True) == "yes"', 'False) == "no"'))
    too_low = small_run.pytest("--pure-coverage")
    assert too_low.returncode == 1, too_low.stdout
    assert "too low: the pure tests cover 50.0 % of the branches (asked for: 85" in too_low.stdout

    small_run.write("tests/test_more.py", A_PURE_TEST.replace('True) == "yes"', 'False) == "no"'))
    enough = small_run.pytest("--pure-coverage")
    assert enough.returncode == 0, enough.stdout
    assert "cover 100.0 % of the branches" in enough.stdout
    assert "too low" not in enough.stdout

    small_run.write(
        "package/never_imported.py", "def pick(yes):\n    return 1 if yes else 2\n\n\nif pick(1):\n    pick(2)\n"
    )
    forgotten = small_run.pytest("--pure-coverage")
    assert forgotten.returncode == 1, forgotten.stdout
    assert "never_imported" in forgotten.stdout


def test_a_run_of_the_pure_tests_alone_does_not_import_modules_without_any(small_run: SmallRun) -> None:
    dear = "import no_such_module\nimport pytest\n\npytestmark = [pytest.mark.servers, pytest.mark.e2e]\n"
    small_run.write("tests/test_dear.py", dear)
    small_run.write("tests/test_pure.py", A_PURE_TEST)
    pure = small_run.pytest("-m", "not spark and not airflow and not servers and not e2e and not slow")
    assert pure.returncode == 0, pure.stdout
    assert "1 passed" in pure.stdout
    assert "no_such_module" in small_run.pytest("-m", "not slow").stdout
