"""A TCP server of lines of words, made from a seed; it goes on from the byte that a client names, and knows the truth.

A client that begins with the line `RESUME <byte>` gets the stream from that byte on; one that says nothing gets what
nobody has been sent yet. The words flow at a rate, from the first connection on, whether somebody listens or not. It
serves until it is stopped by SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import select
import signal
import socket
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WORDS = """
and water time flows through the gate while people wait for night to end stone river bridge light morning wind snow
harvest road letter garden kettle lantern mirror window ladder candle ribbon pocket basket hammer needle thread barrel
wagon anchor compass harbour island forest meadow valley mountain desert ocean thunder shadow ember straße naïve café
über łódź 水 門 時 naught zephyr
"""
VOCABULARY = tuple(_WORDS.split())
_RESUME = re.compile(rb"RESUME ([0-9]{1,18})\n")
_GREETING_S = 0.3
_TICK_S = 0.02
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Text:
    """The whole stream, the same for the same seed and number of words."""

    data: bytes
    line_ends: list[int]
    """For each line, the byte behind it."""
    words_until: list[int]
    """For each line, how many words there are up to its end."""
    words: list[str]

    def counts(self, end: int) -> Counter[str]:
        """How often each word stands in the whole lines before the byte `end`: counted as the words were made."""
        lines = bisect_right(self.line_ends, end)
        return Counter(self.words[: self.words_until[lines - 1] if lines else 0])

    def end_at(self, words: float) -> int:
        """The byte behind the last line that is complete after so many words."""
        lines = bisect_right(self.words_until, words)
        return self.line_ends[lines - 1] if lines else 0


def make_text(seed: int, total_words: int) -> Text:
    """Lines of 1 to 15 words; a few words are common, most are rare."""
    chance = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(VOCABULARY) + 1)]
    words = chance.choices(VOCABULARY, weights, k=total_words)
    data, line_ends, words_until = bytearray(), [], []
    at = 0
    while at < total_words:
        end = min(total_words, at + chance.randint(1, 15))
        data += " ".join(words[at:end]).encode() + b"\n"
        line_ends.append(len(data))
        words_until.append(end)
        at = end
    return Text(bytes(data), line_ends, words_until, words)


class TextServer:
    """Serves one text, on 127.0.0.1 only, from threads of its own. A context manager."""

    def __init__(
        self, text: Text, *, port: int = 0, words_per_second: float | None = None, cuts: Sequence[int] = ()
    ) -> None:
        """`cuts` are bytes of the stream at which the connection breaks, each once: a line's middle, for instance."""
        self.text = text
        self.resumed: list[int] = []
        """The bytes that clients named, in order."""
        self.sent_to = 0
        """The byte behind the last one that was ever sent."""
        self.sent_in_all = 0
        """All bytes that were sent, also those that were sent again."""
        self.held_at = len(text.data)
        """Nothing behind this byte is sent; may be set while the server runs."""
        self._held_words = 0.0
        self._rate = words_per_second
        self._cuts = sorted(cuts)
        self._begun: float | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._clients: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="text server", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether every byte has been sent at least once."""
        return self.sent_to == len(self.text.data)

    def facts(self) -> dict[str, Any]:
        """What was sent, and the truth about it."""
        counts = self.text.counts(self.sent_to)
        return {
            "complete": self.complete,
            "lines": bisect_right(self.text.line_ends, self.sent_to),
            "words": sum(counts.values()),
            "bytes": self.sent_to,
            "bytes_in_all": self.sent_in_all,
            "resumed": self.resumed,
            "counts": dict(sorted(counts.items())),
        }

    def hold_at(self, words: float) -> None:
        """Nothing behind so many words is sent until `go_on`."""
        self._held_words, self.held_at = words, self.text.end_at(words)

    def go_on(self) -> None:
        """What was held comes from now on, no faster than the rest."""
        if self._rate is not None and self._begun is not None:
            self._begun = max(self._begun, time.monotonic() - self._held_words / self._rate)
        self.held_at = len(self.text.data)

    def break_connections(self) -> None:
        """Close what is open, wherever it stands; clients may come again."""
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            _shut(client)

    def close(self) -> None:
        self._closing.set()
        _shut(self._listener)
        self._listener.close()
        self.break_connections()
        self._thread.join(timeout=5)

    def __enter__(self) -> TextServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                self._clients.add(client)
                if self._begun is None:
                    self._begun = time.monotonic()
            threading.Thread(target=self._serve, args=(client,), name="text client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                self._send(client, self._where_to_begin(client))
        except OSError:
            return  # the client has gone: it will come again and say where it stands
        finally:
            with self._lock:
                self._clients.discard(client)

    def _where_to_begin(self, client: socket.socket) -> int:
        client.settimeout(_GREETING_S)
        greeting = b""
        try:
            while not greeting.endswith(b"\n") and (more := client.recv(64)):
                greeting += more
        except TimeoutError:
            return self.sent_to
        match = _RESUME.fullmatch(greeting)
        if match is None or int(match[1]) > len(self.text.data):
            raise ConnectionError(f"a client said {greeting[:80]!r}")
        self.resumed.append(int(match[1]))
        return int(match[1])

    def _send(self, client: socket.socket, at: int) -> None:
        client.settimeout(None)
        while not self._closing.is_set():
            end, breaks = self._until(at)
            if end > at:
                self._note(at, end)
                client.sendall(self.text.data[at:end])
                at = end
            elif select.select([client], [], [], _TICK_S)[0] and not client.recv(64):
                return  # it has hung up
            if breaks:
                return

    def _until(self, at: int) -> tuple[int, bool]:
        """How far to send from `at` now, and whether the connection breaks there."""
        end = min(self._made(), at + _CHUNK)
        with self._lock:
            cut = next((cut for cut in self._cuts if at < cut <= end), None)
            if cut is None:
                return end, False
            self._cuts.remove(cut)
            return cut, True

    def _made(self) -> int:
        """How much of the stream there is by now."""
        if self._rate is None or self._begun is None:
            return self.held_at
        return min(self.held_at, self.text.end_at(self._rate * (time.monotonic() - self._begun)))

    def _note(self, start: int, end: int) -> None:
        with self._lock:
            self.sent_in_all += end - start
            self.sent_to = max(self.sent_to, end)


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # not connected (any more)


def main() -> int:
    arguments = _arguments()
    text = make_text(arguments.seed, arguments.total_words)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = TextServer(text, port=arguments.port, words_per_second=arguments.rate)
    except OSError as error:
        print(f"text server: port {arguments.port} cannot be used: {error.strerror}; choose another with --port")
        return 1
    with server:
        print(f"text server: {arguments.total_words} words on 127.0.0.1:{server.port}", flush=True)
        stop.wait()
    facts = server.facts()
    if arguments.truth:
        temp = arguments.truth.with_suffix(".part")
        temp.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
        temp.replace(arguments.truth)
    again = max(0, facts["bytes_in_all"] - facts["bytes"])
    print(
        f"text server: {facts['lines']} lines and {facts['words']} words sent, {again} bytes more than once; "
        f"{len(server.resumed)} times a client named the byte to begin at"
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9999, help="0: a free one, which the first line of output names")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-words", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=2_000, help="words a second; 0: as fast as they are taken")
    parser.add_argument("--truth", type=Path, help="a JSON file: at the end, what was sent, and each word's count")
    arguments = parser.parse_args()
    if arguments.total_words < 1 or arguments.rate < 0 or not 0 <= arguments.port <= 65_535:
        parser.error("--total-words is 1 or more, --rate 0 or more, --port 0 to 65535")
    arguments.rate = arguments.rate or None
    return arguments


if __name__ == "__main__":
    sys.exit(main())
