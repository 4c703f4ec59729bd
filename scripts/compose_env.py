"""Writes .env for docker-compose.yaml, with fresh secrets that only its owner can read; needs nothing but Python."""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / ".env"


def environment() -> dict[str, str]:
    """Every variable that docker-compose.yaml asks for."""
    return {
        "POSTGRES_PASSWORD": secrets.token_hex(24),
        "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW_API_SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW_JWT_SECRET": secrets.token_hex(64),
        "AIRFLOW_UID": str(os.getuid() or 50000),  # root on the host: the image's own user
    }


def write(file: Path) -> None:
    """Make `file`, or fill an empty one: what a database was made with is never written over."""
    if file.exists() and file.stat().st_size:
        sys.exit(f"{file} is there already, and the database was perhaps made with it; remove it to get a new one")
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as written:
        written.writelines(f"{name}={value}\n" for name, value in environment().items())
    fresh.replace(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FILE, help="where to write it [default: beside the yaml]")
    write(parser.parse_args().file)
