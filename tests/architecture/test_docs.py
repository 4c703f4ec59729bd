"""The documents say what the code says: settings, commands and their options, tests that are named, the first job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from headgate.job.loading import load_job
from headgate.job.plan import guarantee
from headgate.job.tasks import graph_plan
from headgate_contract.options import OPTIONS
from headgate_contract.settings import Settings
from headgate_control.cli import app
from scripts.settings_table import PAGE, table, table_in
from tests.house_rules import REPO

PAGES = sorted({REPO / "README.md", *REPO.glob("docs/*.md"), *REPO.glob("docs/adr/*.md")})
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(headgate [^`\n]+)`")
PREFIXES = "execution|state|restart-strategy|heartbeat|headgate|parallelism|pipeline"
KEY = re.compile(rf"`((?:{PREFIXES})\.[a-z0-9.-]*[a-z0-9])\b")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::([\w:]+))?`")
MECHANISMS = 37


def commands(page: str) -> Iterator[str]:
    """Every `headgate ...` that a page shows, in blocks and in lines."""
    for block in BLOCK.finditer(page):
        for line in block["text"].splitlines():
            bare = line.strip().removeprefix("$ ")
            if bare.startswith("headgate "):
                yield bare.partition("  #")[0]
    for match in INLINE.finditer(BLOCK.sub("", page)):
        yield match[1]


def without_errors_table(page: Path) -> str:
    """The page without the section whose commands are wrong on purpose."""
    before, _, rest = page.read_text().partition("\n## Errors\n")
    return before + "\n## " + rest.partition("\n## ")[2]


def unknown_in(command: str) -> list[str]:
    """What the command line does not know of a command."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    words = shlex.split(command, comments=True)[1:]
    verbs = [word for word in words if word in root.commands]
    if not verbs:
        return [command]
    known = {
        name
        for param in (*root.params, *root.commands[verbs[0]].params)
        for name in (*param.opts, *param.secondary_opts)
    }
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in {*known, "--help"}]


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert table_in(PAGE.read_text()) == table(), "run scripts/settings_table.py --write"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_command_that_is_shown_exists_with_its_options(page: Path) -> None:
    wrong = {command: unknown_in(command) for command in commands(without_errors_table(page))}
    assert {command: unknown for command, unknown in wrong.items() if unknown} == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    page = "```\nheadgate strat orders\nheadgate start orders --frsh  # why\n```\n`headgate status orders --json`"
    assert [unknown_in(command) for command in commands(page)] == [["headgate strat orders"], ["--frsh"], []]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_setting_that_is_named_exists(page: Path) -> None:
    known = {name for option in OPTIONS for name in (option.key, *option.deprecated)}
    assert {key for key in KEY.findall(without_errors_table(page)) if key not in known} == set()


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = NAMED_TEST.findall((REPO / "docs" / "guarantees.md").read_text())
    assert len(named) > 20
    missing = [f"{path}::{name}" for path, name in named if not _is_there(REPO / path, name)]
    assert missing == []


def _is_there(path: Path, name: str) -> bool:
    """Whether the file defines every part of `name` (Class::test, or a module-level name)."""
    if not path.is_file():
        return False
    text = path.read_text()
    return all(
        re.search(rf"^\s*(?:def|class) {part}\b|^{part} = ", text, re.MULTILINE) for part in name.split("::") if part
    )


def test_the_guarantees_account_for_every_mechanism() -> None:
    page = (REPO / "docs" / "guarantees.md").read_text()
    named = {int(number) for number in re.findall(r"\bM(\d+)\b", page)}
    assert named == set(range(1, MECHANISMS + 1))


def test_the_first_job_of_the_readme_is_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    blocks = [block["text"] for block in BLOCK.finditer((REPO / "README.md").read_text()) if block["kind"] == "python"]
    first = tmp_path / "first_job.py"
    first.write_text(blocks[0])
    plan = graph_plan(load_job(first)[0])
    assert guarantee(plan, Settings({"execution.checkpointing.interval": "5 s"}))["level"] == "exactly-once"
