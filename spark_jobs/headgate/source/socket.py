"""Lines of text from a TCP server, kept in a log of our own, so that they can be read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.source.base import Source
from headgate_contract.errors import JobInvalid


@dataclass(frozen=True)
class SocketSource(Source):
    """Made by `socket`."""

    kind: ClassVar[str] = "socket"
    host: str
    port: int
    resume: bool
    max_bytes_per_trigger: int

    @property
    def guarantee(self) -> str:
        return "exactly-once" if self.resume else "at-most-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "host": self.host, "port": self.port, "resume": self.resume}


def socket(host: str, port: int, *, resume: bool = False, max_bytes_per_trigger: int = 4 << 20) -> SocketSource:
    """Read whole lines (UTF-8, ended by a newline) from a server, as the column `value`.

    What arrives is written to a log and synced before it counts as read: from there on it can be replayed. What the server
    sends while nobody reads is lost, unless it resumes: with `resume=True` the first line that we send is `RESUME <byte>`,
    and the server goes on from that byte of its stream.
    """
    if not isinstance(host, str) or not host:
        raise JobInvalid(f"socket: the host is {host!r}")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise JobInvalid(f"socket: the port is {port!r}, it is between 1 and 65535")
    if max_bytes_per_trigger < 1:
        raise JobInvalid(f"socket: max_bytes_per_trigger is {max_bytes_per_trigger!r}, it must be 1 or more")
    return SocketSource(host, port, resume, max_bytes_per_trigger)
