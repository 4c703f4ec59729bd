"""What each test of the sinks leaves behind is taken out of memory."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    """fsspec's memory file system looks through all that it holds, for every listing."""
    yield
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
