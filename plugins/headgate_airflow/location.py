"""Where a task's stream is stored: what operators and sensors on a stream have in common."""

from __future__ import annotations

from pathlib import Path

from headgate_airflow.fleet import declared_stream, root_of
from headgate_airflow.hooks.headgate import HeadgateHook

TEMPLATED = ("stream", "conn_id", "root", "streams_file")


class OnStream:
    """A task on the stream `stream`.

    Its storage is `root`, or what streams.yaml says of the stream, or $HEADGATE_ROOT, or what the connection
    `conn_id` names; a connection's options count in any case.
    """

    stream: str
    conn_id: str | None
    root: str | None
    streams_file: str | None

    def locate(self, stream: str, conn_id: str | None, root: str | None, streams_file: str | Path | None) -> None:
        self.stream = stream
        self.conn_id = conn_id
        self.root = root
        self.streams_file = str(streams_file) if streams_file is not None else None

    @property
    def hook(self) -> HeadgateHook:
        """Opens the stream's storage; to be asked for when the task runs, not when its DAG is parsed."""
        root = self.root or root_of(declared_stream(self.stream, self.streams_file))
        return HeadgateHook(self.conn_id or None, root=root)
