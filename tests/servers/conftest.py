"""Servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.moto import make_bucket, moto_server

BUCKET = "headgate-test"  # also the one that scripts/minio.sh makes


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "minio: against a real MinIO, which `make test-minio` starts; else not selected")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of a real MinIO unless they were asked for by their marker."""
    if "minio" in config.option.markexpr:
        return
    unasked = [item for item in items if item.get_closest_marker("minio")]
    config.hook.pytest_deselected(items=unasked)
    items[:] = [item for item in items if item not in unasked]


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a moto with one bucket, `headgate-test`."""
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as endpoint:
        make_bucket(endpoint, BUCKET)
        yield endpoint
