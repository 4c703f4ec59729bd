"""What fills the log from a server: it comes back, resumes at the durable byte, loses and doubles nothing."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from headgate.source.line_log import LineLog, LogPosition, SegmentWriter
from headgate.source.line_ranges import LineView
from headgate.source.socket import SocketSource
from headgate.source.socket import socket as socket_source
from headgate.source.socket_feed import SocketFeed
from headgate_contract.errors import StreamFailed
from scripts.text_server import TextServer, make_text
from tests.runtime.source.logs import lines_from, make_log

pytestmark = pytest.mark.servers

TEXT = make_text(7, 20_000)


@pytest.fixture
def log(tmp_path: Path) -> LineLog:
    return make_log(tmp_path)


def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


@contextmanager
def feeding(source: SocketSource, writer: SegmentWriter) -> Iterator[None]:
    feed = SocketFeed(source, writer)
    feed.start()
    try:
        yield
    finally:
        feed.close()


def _logged(log: LineLog, *segments: int) -> int:
    return sum(log.lines(segment).stat().st_size for segment in segments)


def _text_of(log: LineLog, segment: int) -> bytes:
    view = LineView(log, segment)
    return "".join(f"{line}\n" for line in lines_from(view, view.beginning())).encode()


class Scripted:
    """A server that does with each connection what it is told, and then hangs up."""

    def __init__(self, *answers: Callable[[socket.socket], None]) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, suppress(OSError):  # whoever has had enough hangs up, whatever is still on its way
                self.connections += 1
                if self._answers:
                    self._answers.pop(0)(client)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def make(*answers: Callable[[socket.socket], None]) -> Scripted:
        made.append(Scripted(*answers))
        return made[-1]

    yield make
    for server in made:
        server.close()


def test_all_lines_arrive_as_they_were_sent(log):
    with TextServer(TEXT) as server:
        writer = log.begin(1, resumes=True)
        with feeding(socket_source("127.0.0.1", server.port, resume=True), writer):
            until(lambda: _logged(log, 1) == len(TEXT.data))
    assert log.lines(1).read_bytes() == TEXT.data
    assert server.resumed == [0]


def test_a_connection_that_breaks_inside_a_line_is_resumed_behind_the_last_whole_one(log):
    cuts = [TEXT.line_ends[at] + 3 for at in (0, 10, 500, 501)]
    with TextServer(TEXT, cuts=cuts) as server:
        writer = log.begin(1, resumes=True)
        with feeding(socket_source("127.0.0.1", server.port, resume=True), writer):
            until(lambda: _logged(log, 1) == len(TEXT.data))
    assert log.lines(1).read_bytes() == TEXT.data
    assert server.resumed == [0, *(TEXT.line_ends[at] for at in (0, 10, 500, 501))]


def test_the_server_may_go_away_and_come_back_on_its_port(log):
    with TextServer(TEXT, words_per_second=20_000) as server:
        writer = log.begin(1, resumes=True)
        with feeding(socket_source("127.0.0.1", server.port, resume=True), writer):
            until(lambda: _logged(log, 1) > 10_000)
            server.close()
            stood = writer.durable_byte()
            with TextServer(TEXT, port=server.port) as again:
                until(lambda: _logged(log, 1) == len(TEXT.data))
    assert log.lines(1).read_bytes() == TEXT.data
    (resumed,) = again.resumed
    assert stood <= resumed, (
        "where it stood, behind what was still on its way: none of it is there twice, none is missing"
    )


def test_a_server_that_turns_everybody_away_is_not_asked_in_a_busy_loop(log, scripted):
    server = scripted()
    writer = log.begin(1, resumes=True)
    begun = time.monotonic()
    with feeding(socket_source("127.0.0.1", server.port, resume=True), writer):
        until(lambda: server.connections >= 4)
        assert time.monotonic() - begun > 0.6, "0.1 s, 0.2 s and 0.4 s, however slow the machine is"


def test_without_resume_nothing_is_said_and_a_half_line_of_a_lost_connection_is_dropped(log, scripted):
    heard = []

    def answer(client: socket.socket) -> None:
        client.sendall(b"two\nthree\n")
        heard.append(_heard_by(client))

    server = scripted(lambda client: client.sendall(b"one\ntw"), answer)
    writer = log.begin(1, resumes=False)
    with feeding(socket_source("127.0.0.1", server.port), writer):
        until(lambda: _logged(log, 1) == len(b"one\ntwo\nthree\n") and bool(heard))
    assert log.lines(1).read_bytes() == b"one\ntwo\nthree\n"
    assert heard == [b""]


def _heard_by(client: socket.socket) -> bytes:
    client.settimeout(0.2)
    try:
        return client.recv(64)
    except TimeoutError:
        return b""


@pytest.mark.parametrize(
    ("pieces", "limit"),
    [
        ([b"fine\n", b"x" * 11 + b"\n"], 10),
        ([b"fine\n" + b"x" * 11], 10),
        ([b"fine\nxxxxx", b"xxxxxx"], 10),
        ([b"fine\n", b"x" * 300_000], 1 << 18),
    ],
)
def test_a_line_above_the_limit_is_named_and_what_came_before_it_is_kept(log, scripted, pieces, limit):
    def answer(client: socket.socket) -> None:
        for piece in pieces:
            client.sendall(piece)
        _heard_by(client)

    server = scripted(answer)
    writer = log.begin(1, resumes=False)
    with feeding(socket_source("127.0.0.1", server.port, max_line_bytes=limit), writer):
        until(lambda: log.given_up(1) is not None)
    assert log.lines(1).read_bytes() == b"fine\n"
    with pytest.raises(StreamFailed, match=f"'lines': 127.0.0.1:{server.port} sent a line of more than {limit} bytes"):
        LineView(log, 1).latest(LogPosition(1, 0), None)


def test_a_line_of_just_the_limit_passes(log, scripted):
    server = scripted(lambda client: client.sendall(b"x" * 10 + b"\n" + b"y" * 10 + b"\n"))
    writer = log.begin(1, resumes=False)
    with feeding(socket_source("127.0.0.1", server.port, max_line_bytes=10), writer):
        until(lambda: _logged(log, 1) == 22)
    assert log.given_up(1) is None


class OnAFullDisk(SegmentWriter):
    """A writer whose disk takes a few bytes, then none for a while, as often as it is asked."""

    refusals = 0

    def write(self, data: memoryview | bytes) -> int:
        if self.refusals % 3 == 1:
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.refusals += 1
        return super().write(bytes(data[:1000]) if self.refusals < 20 else data)


def test_a_full_disk_makes_the_server_wait_and_tears_no_line(log):
    log.begin(1, resumes=True).close()
    writer = OnAFullDisk(log, log.header(1))
    with TextServer(TEXT) as server, feeding(socket_source("127.0.0.1", server.port, resume=True), writer):
        until(lambda: _logged(log, 1) == len(TEXT.data), 60)
    assert log.lines(1).read_bytes() == TEXT.data
    assert server.resumed == [0]


_A_LIFE = """
import sys
from pathlib import Path
from headgate.source.line_log import LineLog
from headgate.source.socket import socket
from headgate.source.socket_feed import SocketFeed
from tests.runtime.source.logs import make_log

log = make_log(Path(sys.argv[1]))
feed = SocketFeed(socket("127.0.0.1", int(sys.argv[3]), resume=True), log.begin(int(sys.argv[2]), resumes=True))
feed.start()
print("reading", flush=True)
sys.stdin.read()
"""


def test_lives_that_are_killed_at_any_moment_leave_a_log_without_gap_or_repeat(log, tmp_path):
    chance = random.Random(11)
    text = make_text(3, 80_000)
    with TextServer(text, words_per_second=15_000) as server:
        segment = 0
        while not server.complete:
            segment += 1
            server.held_at = len(text.data) * min(segment, 5) // 5  # so there are several, however slowly they start
            life = subprocess.Popen(
                [sys.executable, "-c", _A_LIFE, str(tmp_path), str(segment), str(server.port)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert life.stdin is not None
            assert life.stdout is not None
            assert life.stdout.readline() == b"reading\n"
            grown = _logged(log, segment) + chance.randint(0, 40_000)
            until(partial(_has_grown, log, segment, grown, server))
            os.killpg(life.pid, signal.SIGKILL)
            life.wait()
            life.stdin.close()
            life.stdout.close()
        last = log.begin(segment + 1, resumes=True)
        with feeding(socket_source("127.0.0.1", server.port, resume=True), last):
            until(lambda: len(_text_of(log, segment + 1)) >= len(text.data))
    assert _text_of(log, segment + 1) == text.data
    assert len(set(server.resumed)) >= 4
    assert sorted(server.resumed) == server.resumed


def _has_grown(log: LineLog, segment: int, length: int, server: TextServer) -> bool:
    return _logged(log, segment) >= length or server.complete
