"""The sources that a job's author chooses from: `headgate.sources.files(...)` and its kin."""

from __future__ import annotations

from headgate.source.files import files
from headgate.source.rate import rate
from headgate.source.socket import socket

__all__ = ["files", "rate", "socket"]
