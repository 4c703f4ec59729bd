"""Where savepoints may go and snapshots come from: below what is allowed, however it is spelled, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_contract.errors import BadConfiguration, BadInput
from headgate_contract.paths import checked_url, snapshot_at
from headgate_contract.places import ALLOWED_DIRS, Places
from headgate_contract.settings import Settings
from headgate_contract.store import local_folder
from tests.contract.profiles import PROPERTY

PLACES = Places.of(
    "s3://bucket/root",
    Settings(
        {
            "execution.checkpointing.savepoint-dir": "/data/usual",
            ALLOWED_DIRS: "/data/sp; s3a://backup/sp/;file:///data/with%20space",
        }
    ),
)
ALLOWED = [
    "s3://bucket/root",
    "s3://bucket/root/streams/x",
    "s3a://bucket/root/streams/x",
    "file:///data/usual",
    "file:///data/usual/",
    "file:///data/sp",
    "file:///data/sp/below/it",
    "file:///data/sp//below",
    "file:///data/sp/./below",
    "file:///data/other/../sp/below",
    "file://localhost/data/sp/x",
    "file:///data/%73p/x",
    "file:///data/with space/x",
    "s3://backup/sp/x",
    "s3a://backup/sp",
]
REFUSED = [
    "file:///data/sp-evil",
    "file:///data/s",
    "file:///data",
    "file:///",
    "file:///data/sp/../evil",
    "file:///data/sp/%2e%2e/evil",
    "file:///data/sp/%2E./%2e%2E/etc",
    "file:///data/sp%2f..%2fevil",
    "file:///data/SP/x",
    "file:///evil//data/sp",
    "s3://backup/sp-evil",
    "s3://backup/SP",
    "s3://backup",
    "s3://backup2/sp",
    "s3://Bucket/root",
    "s3://bucket/roots",
    "s3:///bucket/root",
    "file:///bucket/root",
    "file:///backup/sp",
    "s3://data/sp",
    "gs://bucket/root",
]
NO_PLACE = [
    "s3://backup/sp2/../sp3",
    "s3://backup/sp/../evil",
    "s3://backup/sp/%2e%2e/evil",
    "s3://backup/sp/./x",
    "file:///data/sp/%00",
    "file://elsewhere/data/sp",
    "file:///data/sp#/x",
]


@pytest.mark.parametrize("url", ALLOWED)
def test_what_lies_in_an_allowed_place_is_allowed_however_it_is_spelled(url: str) -> None:
    assert PLACES.allow(url)
    PLACES.check_target(url)


@pytest.mark.parametrize("url", REFUSED)
def test_what_only_looks_as_if_is_refused_and_the_setting_named(url: str) -> None:
    assert not PLACES.allow(url)
    with pytest.raises(BadInput, match=ALLOWED_DIRS) as refused:
        PLACES.check_target(url)
    assert "s3://bucket/root, file:///data/usual, file:///data/sp, s3://backup/sp" in refused.value.hint


@pytest.mark.parametrize("url", NO_PLACE)
def test_what_is_no_one_place_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        PLACES.allow(url)


def test_links_are_judged_by_where_they_lead(tmp_path: Path) -> None:
    for name in ("sp", "evil"):
        (tmp_path / name).mkdir()
    (tmp_path / "sp" / "out").symlink_to(tmp_path / "evil")
    (tmp_path / "in").symlink_to(tmp_path / "sp")
    places = Places(f"file://{tmp_path}/root", named=(f"file://{tmp_path}/in",))
    assert places.allow(f"file://{tmp_path}/sp/x"), "what an allowed name leads to is allowed"
    assert places.allow(f"file://{tmp_path}/in/x")
    assert not places.allow(f"file://{tmp_path}/sp/out/x")
    assert not places.allow(f"file://{tmp_path}/in/out")
    assert not places.allow(f"file://{tmp_path}/sp/out/../x"), "that is beside what it leads to"


def test_a_checkpoints_files_lie_beside_its_folder_so_its_root_has_to_be_allowed() -> None:
    places = Places("file:///root", named=("file:///theirs/streams/x/checkpoints", "file:///backup/orders-sp-3-g1"))
    places.check_snapshot("file:///backup", "orders-sp-3-g1")
    with pytest.raises(BadInput, match="a snapshot may not be restored from file:///backup/orders-sp-4-g1"):
        places.check_snapshot("file:///backup", "orders-sp-4-g1")
    with pytest.raises(BadInput, match="a snapshot may not be restored from file:///theirs"):
        places.check_snapshot("file:///theirs", "streams/x/checkpoints/chk-3-g1")
    Places("file:///root", named=("file:///theirs",)).check_snapshot("file:///theirs", "streams/x/checkpoints/chk-3-g1")


def test_without_settings_the_root_and_nothing_else_is_allowed() -> None:
    places = Places.of("file:///root", Settings({}))
    assert places.allow("file:///root/backup")
    assert not places.allow("file:///backup")


@pytest.mark.parametrize("text", ["/", "file:///", "relative", "~/x", "s3://", "gs://b/x", "/a;b", "memory://x", ""])
def test_a_list_with_what_is_no_directory_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match=ALLOWED_DIRS):
        Settings({ALLOWED_DIRS: text})


def judged(places: Places, location: str, folder: str) -> bool:
    try:
        places.check_snapshot(location, folder)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize("folder", ["..%2froot%2fx", "%2e%2e%2froot", "..%2Froot", "%2froot", "../evil/x"])
def test_a_snapshots_folder_is_judged_by_its_name_as_the_store_opens_it(tmp_path: Path, folder: str) -> None:
    (tmp_path / "root" / "x").mkdir(parents=True)
    (tmp_path / "evil" / folder).mkdir(parents=True)
    places = Places((tmp_path / "root").as_uri())
    assert not judged(places, f"file://{tmp_path}/evil", folder)
    assert judged(places, f"file://{tmp_path}/root", folder) is ("/" not in folder)


def test_a_folder_below_the_root_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    for name in ("root", "evil", "backup"):
        (tmp_path / name / "x").mkdir(parents=True)
    for name in ("evil", "backup"):
        (tmp_path / "root" / name).symlink_to(tmp_path / name)
    root = (tmp_path / "root").as_uri()
    places = Places(root, named=((tmp_path / "backup").as_uri(),))
    assert judged(places, root, "streams/x/savepoints/y")
    assert judged(places, root, "backup/x")
    with pytest.raises(BadInput, match=f"a snapshot may not be restored from {root}/evil/x;"):
        places.check_snapshot(root, "evil/x")


@pytest.mark.parametrize("end", ["..%2froot%2fx", "%2e%2e", "..", ".", "x%2fy", "x%00"])
def test_the_end_of_a_files_url_is_one_name_or_refused(end: str) -> None:
    for url in (
        f"file:///evil/{end}",
        f"file:///evil/{end}/_metadata",
        f"file:///r/streams/{end}/checkpoints/chk-1-g1",
    ):
        with pytest.raises(BadInput, match="does not end with a folder's name"):
            snapshot_at(url)


def test_what_a_files_url_has_encoded_is_decoded_once_and_a_key_on_s3_never() -> None:
    assert snapshot_at("file:///a%20b/c%20d%2541") == ("file:///a%20b", "c d%41")
    assert snapshot_at("file:///r/streams/o%20x/checkpoints/chk-1-g1") == (
        "file:///r",
        "streams/o x/checkpoints/chk-1-g1",
    )
    assert snapshot_at("s3://b/c%20d") == ("s3://b", "c%20d")


@pytest.mark.parametrize("mark", ["\t", "\n", "\r", "\x00", "\x1b"])
def test_a_url_with_a_character_that_readers_of_urls_leave_out_is_refused(mark: str) -> None:
    url = f"file:///root/.{mark}./evil"
    with pytest.raises(BadInput, match="a character that cannot be seen"):
        checked_url(url)
    if mark in "\t\n\r":
        assert not Places("file:///root").allow(url), "it is read as the store reads it"


SEGMENT = st.sampled_from(["sp", "sp-evil", "..", ".", "", "evil", "%2e%2e", "%73p", "data", "Sp"])


@PROPERTY
@given(st.lists(SEGMENT, max_size=7))
def test_what_is_allowed_on_files_is_what_the_system_opens_below_an_allowed_folder(segments: list[str]) -> None:
    url = "/".join(["file:///data", *segments])
    opened = os.path.normpath(unquote(url.removeprefix("file://")))
    below = opened == "/data/sp" or opened.startswith("/data/sp/")
    assert Places("file:///root", named=("file:///data/sp",)).allow(url) is below


NAME = st.sampled_from(["sp", "..%2fsp", "%2e%2e", "%2E%2e%2Fsp", "..", "evil", "%73p", "sp%2fx", "\t", ".\t.", "%09"])


@PROPERTY
@given(st.lists(NAME, max_size=4), st.lists(NAME, min_size=1, max_size=4))
def test_a_snapshot_that_is_allowed_is_one_that_the_store_opens_below_an_allowed_folder(
    way: list[str], folders: list[str]
) -> None:
    location, folder = "/".join(["file:///data", *way]), "/".join(folders)
    opened = os.path.normpath(f"{local_folder(location)}/{folder}")
    if judged(Places("file:///root", named=("file:///data/sp",)), location, folder):
        assert opened == "/data/sp" or opened.startswith("/data/sp/")
