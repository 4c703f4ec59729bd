"""What every state backend must do: a new backend adds one class that inherits from this one.

Each test opens real sessions on real files. The hash space is tiny, so that different keys share a hash.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.state.base import StateBackend
from tests.runtime.state.runs import Run
from tests.runtime.state.suite_refusals import RefusalSentences
from tests.runtime.state.suite_tables import TableSentences
from tests.runtime.state.suite_versions import VersionSentences


class StateBackendSuite(TableSentences, VersionSentences, RefusalSentences):
    """Sentences about state that hold for each backend."""

    @pytest.fixture
    def backend(self) -> StateBackend:
        raise AssertionError("a suite is run by its subclasses")

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        directory = tmp_path / "state"
        directory.mkdir()
        return directory

    @pytest.fixture
    def run(self, backend: StateBackend, directory: Path) -> Run:
        return Run(backend, directory)
