"""The hashmap backend: the suite, and what only sorted segments promise."""

from __future__ import annotations

import pytest

from headgate.state.base import StateBackend
from headgate.state.hashmap import HashMapBackend
from headgate.state.merging import SegmentPolicy
from tests.runtime.state.suite import StateBackendSuite

EAGER = SegmentPolicy(fanout=2, smallest_tier=2, merge_budget=6, merge_factor=1, scan_rows=3)


class TestHashMapBackend(StateBackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return HashMapBackend()


class TestHashMapBackendThatMergesAllTheTime(StateBackendSuite):
    """The same on a policy that merges small pieces, a few key groups at a time, at nearly every seal."""

    @pytest.fixture
    def backend(self) -> StateBackend:
        return HashMapBackend(EAGER)
