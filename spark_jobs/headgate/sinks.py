"""The sinks that a job's author chooses from: `headgate.sinks.files(...)` and its kin."""

from __future__ import annotations

from headgate.sink import console, discard, files

__all__ = ["console", "discard", "files"]
