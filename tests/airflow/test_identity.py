"""A task's identity: equal for all its tries, different from every other's, and always a lawful request id."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_airflow.identity import TaskIdentity
from headgate_contract.ids import StreamName

ME = TaskIdentity("nightly", "manual__2026-05-01T12:00:00+00:00", "savepoint")
NAMES = st.text(min_size=1, max_size=20)


def test_neither_the_try_nor_the_logical_date_is_part_of_it() -> None:
    def context(try_number: int, logical_date: str | None) -> dict[str, object]:
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=try_number)
        return {"ti": ti, "logical_date": logical_date}

    assert TaskIdentity.of(context(1, None)) == TaskIdentity.of(context(3, "2026-05-01"))


def test_who_asks_is_told_to_people() -> None:
    assert ME.by == "airflow nightly/manual__2026-05-01T12:00:00+00:00/savepoint"
    assert TaskIdentity("d", "r", "t", 4).by == "airflow d/r/t[4]"


@pytest.mark.parametrize(
    "other",
    [
        TaskIdentity("nightly", ME.run_id, "savepoint", 0),
        TaskIdentity("nightly", ME.run_id, "other"),
        TaskIdentity("nightly", "manual__2026-05-01T12:00:01+00:00", "savepoint"),
        TaskIdentity("other", ME.run_id, "savepoint"),
    ],
)
def test_no_other_task_has_the_same_request(other: TaskIdentity) -> None:
    stream = StreamName("orders")
    assert ME.request("savepoint", stream) == ME.request("savepoint", stream)
    assert ME.request("savepoint", stream) != other.request("savepoint", stream)
    assert ME.request("savepoint", stream) != ME.request("stop", stream)


@given(NAMES, NAMES, NAMES, st.integers(-1, 1000))
def test_whatever_airflow_calls_its_tasks_the_request_id_is_lawful(dag: str, run: str, task: str, index: int) -> None:
    request = TaskIdentity(dag, run, task, index).request("stop-to-restore", StreamName("s" * 100))
    assert request.next_ordinal().startswith(request)
