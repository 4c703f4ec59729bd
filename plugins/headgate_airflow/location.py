"""Where a task's stream is stored: what operators and sensors on a stream have in common."""

from __future__ import annotations

from pathlib import Path

from headgate_airflow.fleet import declared_fleet
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_contract.errors import BadConfiguration, NotARoot

TEMPLATED = ("stream", "conn_id", "root", "streams_file")


class OnStream:
    """A task on the stream `stream`.

    Its storage is `root`, or what streams.yaml says of the stream (or last said, if it cannot be read now), or the one
    root of the fleet that has the stream, or $HEADGATE_ROOT, or what the connection `conn_id` names; a connection's
    options count in any case.
    """

    stream: str
    conn_id: str | None
    root: str | None
    streams_file: str | None
    _found: tuple[str, str | None] | None = None

    def locate(self, stream: str, conn_id: str | None, root: str | None, streams_file: str | Path | None) -> None:
        self.stream = stream
        self.conn_id = conn_id
        self.root = root
        self.streams_file = str(streams_file) if streams_file is not None else None

    @property
    def hook(self) -> HeadgateHook:
        """Opens the stream's storage; to be asked for when the task runs, not when its DAG is parsed."""
        if self.root:
            return HeadgateHook(self.conn_id or None, root=self.root)
        if self._found is None or self._found[0] != self.stream:
            self._found = (self.stream, self._search())
        return HeadgateHook(self.conn_id or None, root=self._found[1])

    def _search(self) -> str | None:
        fleet = declared_fleet(self.streams_file)
        if self.stream in fleet.watched:
            return fleet.root_of(self.stream)
        roots = [root for root in fleet.by_root if root is not None]
        has_it = [root for root in roots if len(roots) > 1 and self._is_on(root)]
        if len(has_it) > 1:
            raise BadConfiguration(
                f"stream {self.stream} is not in streams.yaml, and on more than one root: {', '.join(has_it)}",
                hint="name it in streams.yaml again, or use the command line with --root",
            )
        return has_it[0] if has_it else fleet.default_root or next(iter(roots), None)

    def _is_on(self, root: str) -> bool:
        try:
            return HeadgateHook(self.conn_id or None, root=root).control(by="airflow").knows(self.stream)
        except NotARoot:
            return False
