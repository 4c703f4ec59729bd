"""The text server of the demo and the tests: the same text for the same seed, from any byte, and the truth about it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from scripts.text_server import TextServer, make_text

pytestmark = pytest.mark.servers
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "text_server.py"


def read_from(port: int, greeting: bytes, size: int) -> bytes:
    """What the server sends, until it is so much or the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(greeting)
        found = b""
        while len(found) < size and (more := client.recv(1 << 16)):
            found += more
    return found


def test_the_text_depends_on_seed_and_length_alone():
    assert make_text(5, 1000).data == make_text(5, 1000).data
    assert make_text(5, 1000).data != make_text(6, 1000).data
    assert len(make_text(5, 1000).data.split()) == 1000


def test_the_truth_counts_the_words_of_the_whole_lines_before_a_byte():
    text = make_text(5, 1000)
    end = text.line_ends[20]
    assert text.counts(end + 1) == Counter(text.data[:end].decode().split())
    assert text.counts(0) == Counter()
    assert sum(text.counts(len(text.data)).values()) == 1000


@pytest.mark.parametrize("byte", [0, 1, 777])
def test_it_goes_on_from_the_byte_that_is_named(byte):
    text = make_text(5, 1000)
    with TextServer(text) as server:
        rest = text.data[byte:]
        assert read_from(server.port, b"RESUME %d\n" % byte, len(rest)) == rest
        assert server.complete
        assert server.resumed == [byte]


def test_who_says_nothing_gets_what_nobody_was_sent_yet():
    text = make_text(5, 1000)
    with TextServer(text, cuts=[100]) as server:
        assert read_from(server.port, b"", 1 << 20) == text.data[:100]
        assert read_from(server.port, b"", len(text.data) - 100) == text.data[100:]


@pytest.mark.parametrize("greeting", [b"HELLO\n", b"RESUME x\n", b"RESUME 999999999\n"])
def test_a_greeting_that_makes_no_sense_is_hung_up_on(greeting):
    with TextServer(make_text(5, 100)) as server:
        assert read_from(server.port, greeting, 1) == b""


def test_it_holds_back_what_it_is_told_to_until_it_is_told_otherwise():
    text = make_text(5, 1000)
    with TextServer(text) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        server.held_at = 50
        client.sendall(b"RESUME 0\n")
        found = b""
        while len(found) < 50:
            found += client.recv(1 << 16)
        server.held_at = len(text.data)
        while len(found) < len(text.data):
            found += client.recv(1 << 16)
    assert found == text.data


def test_what_was_held_comes_no_faster_than_the_rest_when_it_may():
    text = make_text(5, 1000)
    with TextServer(text, words_per_second=1_000) as server:
        server.hold_at(500)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(b"RESUME 0\n")
            found = b""
            while len(found) < text.end_at(500):
                found += client.recv(1 << 16)
            time.sleep(1.5)  # by the clock alone all of it would be there
            assert server.sent_to == len(found) == text.end_at(500)
            begun = time.monotonic()
            server.go_on()
            while len(found) < len(text.data):
                found += client.recv(1 << 16)
            assert 0.4 < time.monotonic() - begun < 30
    assert found == text.data


def test_words_flow_at_the_rate():
    text = make_text(5, 1000)
    with TextServer(text, words_per_second=2_000) as server:
        begun = time.monotonic()
        read_from(server.port, b"RESUME 0\n", len(text.data))
        assert 0.4 < time.monotonic() - begun < 30


def test_the_script_tells_its_port_and_leaves_the_truth_when_it_is_stopped(tmp_path):
    truth = tmp_path / "truth.json"
    command = [sys.executable, str(SCRIPT), "--port", "0", "--seed", "9", "--total-words", "500", "--rate", "0"]
    with subprocess.Popen([*command, "--truth", str(truth)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        data = make_text(9, 500).data
        assert read_from(port, b"RESUME 0\n", len(data)) == data
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    facts = json.loads(truth.read_text())
    assert facts["complete"] is True
    assert facts["words"] == 500
    assert facts["counts"] == Counter(data.decode().split())


def test_a_busy_port_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--port", str(port)], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert f"port {port} cannot be used" in done.stdout
