"""RecoverLost goes to all roots at once: one that hangs or fails in an odd way keeps no other from being helped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from headgate_airflow import all_roots
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.last_good import Noted, note, recalled
from headgate_airflow.operators.recover import RecoverLost
from headgate_control import Control
from tests.control.world import World

pytestmark = pytest.mark.airflow

CONTEXT: Mapping[str, Any] = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)}


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, World]:
    """Two roots, and a file that names a stream on each, the bad one first."""
    made = {}
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        made[name] = World(tmp_path / name)
    declared = [f"  {name}: {{job: {world.job}, root: {world.root}}}" for name, world in made.items()]
    (tmp_path / "streams.yaml").write_text("\n".join(["streams:", *declared]))
    monkeypatch.setenv("HEADGATE_STREAMS_FILE", str(tmp_path / "streams.yaml"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return made


def recover(seconds: float = 60.0) -> list[dict[str, Any]]:
    operator = RecoverLost(task_id="t", root_timeout=timedelta(seconds=seconds))
    found: list[dict[str, Any]] = RecoverLost.execute.__wrapped__(operator, CONTEXT)
    return found


def on_bad(monkeypatch: pytest.MonkeyPatch, what: Any) -> list[str]:
    """Whoever opens the bad root meets `what`; the roots that were looked at."""
    seen: list[str] = []
    control, fleet = HeadgateHook.control, Control.fleet

    def opened(hook: HeadgateHook, by: str) -> Control:
        if str(hook.root).endswith("/bad/root"):
            what()
        return control(hook, by)

    def looked(self: Control, *streams: Any) -> Any:
        found = fleet(self, *streams)
        seen.append("looked")
        return found

    monkeypatch.setattr(HeadgateHook, "control", opened)
    monkeypatch.setattr(Control, "fleet", looked)
    return seen


def test_a_root_that_hangs_is_given_up_and_the_others_are_looked_at(
    worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(root: str, *args: Any) -> tuple[Event, Any]:
        """The time of both runs once the good one has answered, however long that takes here."""
        answered, result = unhindered(root, *args)
        assert not root.endswith("/good/root") or answered.wait(60)
        return answered, result

    released, unhindered = Event(), all_roots._begin
    monkeypatch.setattr(all_roots, "_begin", begin)
    seen = on_bad(monkeypatch, released.wait)
    try:
        [entry] = recover(seconds=0.1)
        assert seen == ["looked"]
        assert (entry["stream"], "has not answered for 0.1 s" in entry["problem"]) == ("bad", True)
    finally:
        released.set()


def test_an_error_that_nobody_has_foreseen_fails_the_task_behind_the_other_roots(
    worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise() -> None:
        raise ZeroDivisionError("by surprise")

    seen = on_bad(monkeypatch, surprise)
    with pytest.raises(ZeroDivisionError):
        recover()
    assert seen == ["looked"]


def test_the_task_ends_by_itself_whatever_hangs() -> None:
    timeout = RecoverLost(task_id="t").execution_timeout
    assert timeout is not None
    assert timeout > RecoverLost(task_id="t").root_timeout


def test_roots_that_were_once_noted_stay_and_a_damaged_note_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    file = tmp_path / "streams.yaml"
    note(file, Noted({"a": "/srv/a"}, ("/srv/a",)))
    note(file, Noted({"b": "/srv/b"}, ("/srv/b",)))  # whoever writes it has not been able to read the first
    assert recalled(file) == Noted({"b": "/srv/b"}, ("/srv/a", "/srv/b"))
    [path] = (tmp_path / "headgate").iterdir()
    path.write_text('{"roots": ["/srv/a"')
    assert recalled(file) == Noted()
    note(file, Noted({"b": "/srv/b"}, ("/srv/b",)))
    assert recalled(file).roots == ("/srv/b",)
    assert path.with_name(f"{path.name}.damaged").read_text() == '{"roots": ["/srv/a"'
    assert len(list(path.parent.iterdir())) == 2, "nothing temporary is left"
