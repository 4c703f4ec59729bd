"""A small HTTP proxy in front of an S3 that fails, conflicts or loses its answers, as a network and a busy store do."""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

_METHODS = ("GET", "PUT", "HEAD", "POST", "DELETE")
Fault = Callable[["_Handler", bytes], None]


def answers(status: int, code: str, message: str = "not now") -> Fault:
    """The request is refused and never reaches the store."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def fault(handler: _Handler, _: bytes) -> None:
        handler.reply(status, {"Content-Type": "application/xml"}, body)

    return fault


def loses_the_answer(handler: _Handler, body: bytes) -> None:
    """The store does what was asked; the connection breaks before anybody hears of it."""
    handler.forward(body)
    handler.close_connection = True


def loses_the_answer_and_says_503(handler: _Handler, body: bytes) -> None:
    """The store does what was asked; a gateway in between gives up waiting."""
    handler.forward(body)
    answers(503, "ServiceUnavailable")(handler, body)


@dataclass
class FaultyProxy:
    """What goes wrong next, method by method; everything else is passed on."""

    endpoint: str = ""
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    """Every request: `PUT /bucket/key`."""

    def next(self, method: str, *faults: Fault) -> None:
        """Let the next requests of `method` meet these faults, one each."""
        self.faults.setdefault(method, deque()).extend(faults)

    def count(self, method: str) -> int:
        return sum(line.startswith(f"{method} ") for line in self.seen)


class _Handler(BaseHTTPRequestHandler):
    proxy: ClassVar[FaultyProxy]
    upstream: ClassVar[str]
    lock: ClassVar[threading.Lock]
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.lock:
            self.proxy.seen.append(f"{self.command} {self.path}")
            waiting = self.proxy.faults.get(self.command)
            fault = waiting.popleft() if waiting else None
        if fault is not None:
            fault(self, body)
        else:
            self.reply(*self.forward(body))

    def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert "chunked" not in (self.headers.get("Transfer-Encoding") or ""), "this proxy reads whole bodies"
        with closing(http.client.HTTPConnection(self.upstream, timeout=60)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            data = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in ("connection", "date")}
        return answer.status, kept, data

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        length = headers.pop("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "server", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: `seen` tells."""


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A proxy in front of the S3 at `upstream`, on a free port."""
    proxy = FaultyProxy()
    attributes: dict[str, object] = {f"do_{method}": _Handler.handle_request for method in _METHODS}
    attributes |= {"proxy": proxy, "upstream": urlsplit(upstream).netloc, "lock": threading.Lock()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), attributes))
    server.daemon_threads = True
    server.block_on_close = False
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="faulty-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
