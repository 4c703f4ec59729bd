"""Which text names a root: absolute, on storage that is known, and nothing that somebody else would fill in."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from headgate_contract.errors import BadConfiguration
from headgate_contract.roots import checked_root
from headgate_contract.store import open_store


@pytest.mark.parametrize(
    "root",
    [
        "/srv/headgate",
        "/srv/with space/ü",
        "file:///srv/x",
        "file://localhost/srv/x",
        "s3://bucket",
        "s3://b/x/y",
        "s3a://b/x",
    ],
)
def test_what_is_absolute_and_known_is_taken(root: str) -> None:
    assert checked_root(f"  {root}\n") == root
    assert open_store(root).url


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("", "is empty"),
        ("data/root", "is not absolute"),
        (".", "is not absolute"),
        ("../root", "is not absolute"),
        ("~/root", "each user would have one of his own"),
        ("D:\\data\\root", "a path of Windows"),
        ("d:/data", "a path of Windows"),
        ("\\\\server\\share", "a path of Windows"),
        ("$HOME/root", "holds $HOME, which nobody fills in"),
        ("/srv/${STAGE}/root", "holds ${STAGE}, which nobody fills in"),
        ("s3://$BUCKET/x", "holds $BUCKET, which nobody fills in"),
        ("http://minio:9000/bucket", "a web address"),
        ("https://bucket.s3.amazonaws.com/x", "a web address"),
        ("gs://bucket/x", "'gs', which is not supported"),
        ("abfss://c@account.dfs.core.windows.net/x", "'abfss', which is not supported"),
        ("hdfs://name:8020/x", "'hdfs', which is not supported"),
        ("file:/srv/x", "'://' is missing"),
        ("s3:bucket/x", "'://' is missing"),
        ("file://srv/x", "three slashes"),
        ("s3://", "names no bucket"),
        ("s3://KEY:SECRET@bucket/x", "carries credentials"),
    ],
)
def test_what_is_not_is_refused_by_name(root: str, said: str) -> None:
    with pytest.raises(BadConfiguration) as raised:
        checked_root(root, "$HEADGATE_ROOT")
    assert said in str(raised.value)
    assert raised.value.hint
    assert "SECRET" not in str(raised.value)


def test_a_relative_one_is_told_with_its_absolute_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match=f"if {tmp_path}/data/root is meant, write that"):
        checked_root("data/root", near=tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadConfiguration, match=f"if {tmp_path}/root is meant, write that"):
        checked_root("~/root")


def test_a_scheme_whose_package_is_missing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(BadConfiguration, match="the package s3fs is missing"):
        checked_root("s3://bucket/x")
