"""Fills a segment of a log with the lines that a TCP server sends; connects again whenever the server goes away."""

from __future__ import annotations

import errno
import logging
import socket
import threading

from headgate.source.line_log import SegmentWriter
from headgate.source.socket import SocketSource
from headgate_contract.errors import StorageError, StreamFailed

log = logging.getLogger(__name__)

CHUNK = 1 << 18
CONNECT_S = 10.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
_TICK_S = 0.5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class SocketFeed:
    """One thread, in the driver's process, which dies with it.

    While the disk is full it waits, and the server with it. What it cannot mend it leaves word of in the log, where the
    stream finds it.
    """

    def __init__(self, source: SocketSource, writer: SegmentWriter) -> None:
        self._source = source
        self._writer = writer
        self._where = f"{source.host}:{source.port}"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="socket feed", daemon=True)
        self._said = ""
        self._rest = bytearray()

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it goes on: not, once it has given up."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End; what has not been written by now is not read."""
        self._closing.set()
        self._thread.join(timeout=CONNECT_S)

    def _run(self) -> None:
        try:
            self._feed()
        except (StreamFailed, StorageError) as error:
            self._give_up(str(error))
        except Exception as error:
            log.exception("the feed of source %r failed", self._writer.log.source)
            self._give_up(f"the feed of source {self._writer.log.source!r} failed: {type(error).__name__}: {error}")
        finally:
            self._writer.close()

    def _feed(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            heard = 0
            why = f"{self._where} has closed the connection"
            try:
                with socket.create_connection((self._source.host, self._source.port), CONNECT_S) as connection:
                    self._greet(connection)
                    while not self._closing.is_set() and (more := self._receive(connection)):
                        heard += more
            except OSError as error:
                why = f"{self._where} cannot be read: {error.strerror or error}"
            if self._closing.is_set():
                return
            if heard:
                pause, self._said = FIRST_PAUSE_S, ""
            self._say(why)
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _greet(self, connection: socket.socket) -> None:
        """A new connection begins with a new line: what is left of the last one's is forgotten."""
        self._rest.clear()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(_TICK_S)
        if self._source.resume:
            byte = self._writer.durable_byte()
            connection.sendall(f"RESUME {byte}\n".encode())
            log.info("source %r: connected to %s, from its byte %s on", self._writer.log.source, self._where, byte)
        else:
            log.info("source %r: connected to %s", self._writer.log.source, self._where)

    def _receive(self, connection: socket.socket) -> int:
        """Take what has come, until something has; 0 when the connection has ended."""
        while not self._closing.is_set():
            try:
                data = connection.recv(min(CHUNK, self._source.max_line_bytes))
            except TimeoutError:
                continue
            first, last = data.find(b"\n"), data.rfind(b"\n") + 1
            if len(self._rest) + (len(data) if first < 0 else first) > self._source.max_line_bytes:
                raise self._too_long(bytes(self._rest) + data)
            if last:
                self._append(bytes(self._rest) + data[:last])
                self._rest.clear()
            self._rest += data[last:]
            return len(data)
        return 0

    def _append(self, lines: bytes) -> None:
        rest = memoryview(lines)
        pause = FIRST_PAUSE_S
        while rest:
            try:
                rest = rest[self._writer.write(rest) :]
                pause = FIRST_PAUSE_S
            except OSError as error:
                why = f"{self._writer.log.lines(self._writer.segment)} cannot be written: {error.strerror}"
                if error.errno not in _NO_ROOM:
                    raise StorageError(why) from error
                self._say(f"{why}; {self._where} waits until there is room")
                if self._closing.wait(pause):
                    return
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _too_long(self, line: bytes) -> StreamFailed:
        return StreamFailed(
            f"source {self._writer.log.source!r}: {self._where} sent a line of more than "
            f"{self._source.max_line_bytes} bytes, which begins with {line[:40]!r}",
            hint="raise the source's max_line_bytes, or mend what sends it",
        )

    def _give_up(self, why: str) -> None:
        """Leave word. Until that succeeds nobody would know, so it is tried for as long as it takes."""
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                self._writer.log.give_up(self._writer.segment, why)
                return
            except StorageError as error:
                log.warning("%s; and nobody can be told: %s", why, error)
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _say(self, what: str) -> None:
        """A server that stays away is worth one line, not one for each attempt."""
        if what != self._said:
            log.warning("source %r: %s", self._writer.log.source, what)
            self._said = what
