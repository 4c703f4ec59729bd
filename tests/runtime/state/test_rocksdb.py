"""The rocksdb backend: the suite, and what only RocksDB could get wrong."""

from __future__ import annotations

import pytest

from headgate.state.base import StateBackend
from headgate.state.rocksdb import RocksDBBackend
from tests.runtime.state.suite import StateBackendSuite


class TestRocksDBBackend(StateBackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return RocksDBBackend()
