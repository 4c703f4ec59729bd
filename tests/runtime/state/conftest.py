"""Lets the assertions of the shared suites say what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"tests.runtime.state.{name}" for name in ("samples", "suite_refusals", "suite_tables", "suite_versions"))
)
