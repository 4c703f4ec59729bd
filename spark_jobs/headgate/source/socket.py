"""Lines of text from a TCP server, kept in a log of our own, so that they can be read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.source.base import Source
from headgate_contract.errors import JobInvalid

LARGEST_TRIGGER = 1 << 30


@dataclass(frozen=True)
class SocketSource(Source):
    """Made by `socket`."""

    kind: ClassVar[str] = "socket"
    host: str
    port: int
    resume: bool
    max_bytes_per_trigger: int
    max_line_bytes: int = 1 << 20

    @property
    def guarantee(self) -> str:
        return "exactly-once" if self.resume else "at-most-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "host": self.host, "port": self.port, "resume": self.resume}


def socket(
    host: str,
    port: int,
    *,
    resume: bool = False,
    max_bytes_per_trigger: int = 4 << 20,
    max_line_bytes: int = 1 << 20,
) -> SocketSource:
    """Read whole lines (UTF-8, ended by a newline) from a server, as the column `value`.

    What arrives is written to a log below the storage root, which must be a file system, and synced before it counts as
    read: from there on it can be replayed. What the server sends while nobody reads is lost, unless it resumes: with
    `resume=True` the first line that we send is `RESUME <byte>`, and the server goes on from that byte of its stream
    (every byte counts as it was sent, newlines too). The server may go away and come back; the stream waits meanwhile.

    A line loses its newline, and a carriage return before it; a byte that is no UTF-8 becomes U+FFFD, and stays in the
    log as it came. A line of more than `max_line_bytes` fails the stream. A micro-batch takes `max_bytes_per_trigger`,
    but one line at least.
    The log is not trimmed: every snapshot that is retained can be replayed, and the log takes the room that takes.
    """
    if not isinstance(host, str) or not host or host != host.strip():
        raise JobInvalid(f"socket: the host is {host!r}")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise JobInvalid(f"socket: the port is {port!r}, it is between 1 and 65535")
    if not isinstance(resume, bool):
        raise JobInvalid(f"socket: resume is {resume!r}, it is True or False")
    for name, number in (("max_bytes_per_trigger", max_bytes_per_trigger), ("max_line_bytes", max_line_bytes)):
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LARGEST_TRIGGER:
            raise JobInvalid(f"socket: {name} is {number!r}, it is between 1 and {LARGEST_TRIGGER}")
    return SocketSource(host, port, resume, max_bytes_per_trigger, max_line_bytes)
