"""What the driver's process says before it has a root to say it on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headgate_contract.errors import BadInput


def test_a_driver_of_a_root_in_memory_says_so_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "headgate.driver", "--root", "memory://here", "--root-id", "x"]
    command += ["--stream", "orders", "--generation", "1", "--launch", "x", "--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == BadInput.exit_code
    assert done.stderr.splitlines() == [
        "the root memory://here lives in this process only: no driver could see it; use a folder or s3://"
    ]
