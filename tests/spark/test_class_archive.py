"""The archive of Spark's classes: used where it is there and this user's own, and never needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.spark import class_archive
from headgate.spark.session import java_options
from tests.house_rules import REPO

pytestmark = pytest.mark.spark

SESSION = """
import sys
from pathlib import Path
from headgate.spark.session import start_session
from headgate_contract.settings import Settings

options = f"-Xlog:class+load:file={sys.argv[1]}/classes.log"
settings = Settings({"spark.master": "local[1]", "spark.driver.extraJavaOptions": options})
session = start_session("archived", settings, Path(sys.argv[1]) / "work", lasting=False)
print("counted", session.range(7).count())
session.stop()
"""
ARCHIVED = "shared objects file (top)"


def run_session(folder: Path, cache: Path | None = None) -> tuple[str, int]:
    """What a session printed, and how many of its classes came from the archive."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(REPO / package) for package in ("plugins", "spark_jobs")),
        **({} if cache is None else {"HEADGATE_CACHE": str(cache)}),
    }
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, (folder / "classes.log").read_text().count(ARCHIVED)


def test_a_session_takes_its_classes_from_the_archive_that_setup_has_made(tmp_path: Path) -> None:
    assert class_archive.archive(), "`make setup` makes it"
    told, archived = run_session(tmp_path)
    assert told == "counted 7\n"
    assert archived > 3_000


def test_one_that_does_not_fit_is_left_alone_by_the_jvm(own: Path, tmp_path: Path) -> None:
    told, archived = run_session(tmp_path, tmp_path)
    assert (told, archived) == ("counted 7\n", 0)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    folder, name = class_archive._place()
    folder.mkdir()
    path = folder / f"{name}-7.jsa"
    path.write_bytes(b"classes")
    return path


def given(options: str = "") -> str:
    return java_options(options, Path("/here/log4j2.properties"), Path("/here"), lasting=True)


def test_an_archive_of_ones_own_is_named_to_the_jvm(own: Path) -> None:
    assert f'"-XX:SharedArchiveFile={own}"' in given()
    assert given("-Xlog:gc").endswith("-Xlog:gc"), "what the settings say comes last"


@pytest.mark.parametrize("who", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_one_that_others_can_change_is_not_used(own: Path, who: str, mode: int) -> None:
    changed = own if who == "file" else own.parent
    changed.chmod(changed.stat().st_mode | mode)
    assert "SharedArchiveFile" not in given()


def test_a_cache_that_cannot_be_looked_at_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file"))
    assert class_archive.options() == []
    monkeypatch.setattr(class_archive, "archive", raising(PermissionError(13, "no")))
    assert class_archive.options() == []
    monkeypatch.setattr(class_archive, "archive", raising(RuntimeError("no home")))
    assert class_archive.options() == []


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("content", [b"", b"class", b"classes, and more"])
def test_one_of_another_length_than_it_was_made_with_is_not_used(own: Path, content: bytes) -> None:
    own.write_bytes(content)
    assert class_archive.options() == []


def test_none_is_needed(own: Path) -> None:
    own.unlink()
    assert class_archive.options() == []
    assert "Archive" not in given()


def test_another_archive_that_the_settings_name_is_the_only_one(own: Path) -> None:
    assert given("-XX:SharedArchiveFile=/their/own.jsa").count("SharedArchiveFile") == 1


def test_another_java_has_another(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert class_archive.archive() is None
