"""An S3 for tests: moto's, in a process of its own on a free port, which ends when its input does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

CREDENTIALS = {"key": "test", "secret": "test"}

# One request at a time: moto looks whether an object exists and then writes it, and so of two at once both could win.
_SERVER = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


@contextmanager
def moto_server(log: Path) -> Iterator[str]:
    """The endpoint of a fresh moto, whose log goes to `log`; it ends with the block, or when this process is killed."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": "", "AWS_EC2_METADATA_DISABLED": "true"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip().decode()
            assert port, f"moto did not start: {log.read_text(errors='replace')[-2000:]}"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            process.stdout.close()


def options(endpoint: str) -> dict[str, object]:
    """What `open_store` needs to reach moto at `endpoint`."""
    return {**CREDENTIALS, "endpoint_url": endpoint}


def make_bucket(endpoint: str, bucket: str) -> None:
    fsspec.filesystem("s3", skip_instance_cache=True, **options(endpoint)).mkdir(bucket)
