"""The small Airflow of the demo and of the tests: a question is asked again while its server is busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import airflow_local
from scripts.airflow_local import LocalAirflow, LocalAirflowFailed

pytestmark = pytest.mark.servers


class Busy(BaseHTTPRequestHandler):
    """Breaks the connection of the first request of a method, answers 500 to the second, and `{}` to the others."""

    def log_message(self, format: str, *args: object) -> None:
        """Silent: `seen` tells."""

    def handle_request(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen: list[str] = self.server.seen  # type: ignore[attr-defined]
        seen.append(self.command)
        times = seen.count(self.command)
        if times == 1:
            self.close_connection = True
            return
        self.send_response(500 if times == 2 else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setattr(airflow_local, "PAUSE_S", 0.0)
    handlers = dict.fromkeys(("do_GET", "do_POST"), Busy.handle_request)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Busy,), handlers)) as found:
        found.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_what_only_looks_is_asked_again_and_what_changes_something_is_not(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    airflow = LocalAirflow(tmp_path)
    airflow.port, airflow._token = server.server_port, "a token"
    assert airflow.api("GET", "/dags") == {}
    with pytest.raises(LocalAirflowFailed, match="POST /dags was not answered"):
        airflow.api("POST", "/dags")
    with pytest.raises(LocalAirflowFailed, match="POST /dags was answered 500"):
        airflow.api("POST", "/dags")
    assert server.seen == ["GET"] * 3 + ["POST"] * 2  # type: ignore[attr-defined]
