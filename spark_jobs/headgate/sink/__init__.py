"""Where records go: two-phase commit, staged by the step's own task."""

from __future__ import annotations

from headgate.sink.console import console
from headgate.sink.discard import discard
from headgate.sink.files import files

__all__ = ["console", "discard", "files"]
