"""Modules are named for what they know, and the walk through the code leads along files that exist."""

from __future__ import annotations

import re

import pytest

from tests.house_rules import REPO

EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "types"}
FOLDERS = ("plugins", "spark_jobs", "dags", "tests", "benchmarks", "scripts")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)")


def test_no_module_or_package_has_an_empty_name() -> None:
    paths = [path.relative_to(REPO) for folder in FOLDERS for path in (REPO / folder).rglob("*.py")]
    assert len(paths) > 20
    named_for_nothing = [str(path) for path in paths if EMPTY_NAMES & {path.stem, *path.parts[:-1]}]
    assert named_for_nothing == []


def links(page: str) -> list[str]:
    """The files of this repository that a page links to, relative to the page."""
    return [link["target"] for link in LINK.finditer(page) if "://" not in link["target"]]


def test_links_are_found_where_markdown_has_them() -> None:
    page = "[a](../x.py) and [b c](y.md#part), [out](https://example.org/z), [t](w.py 'title'), not (v.py)"
    assert links(page) == ["../x.py", "y.md", "w.py"]


@pytest.mark.parametrize("page", sorted({*REPO.glob("*.md"), *REPO.glob("docs/**/*.md")}), ids=lambda page: page.name)
def test_every_linked_file_exists(page) -> None:
    missing = [target for target in links(page.read_text()) if not (page.parent / target).exists()]
    assert missing == []
