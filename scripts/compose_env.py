"""Prints a .env for docker-compose.yaml with fresh secrets; needs nothing but Python."""

from __future__ import annotations

import base64
import os
import secrets

ENVIRONMENT = {
    "POSTGRES_PASSWORD": secrets.token_hex(24),
    "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    "AIRFLOW_API_SECRET_KEY": secrets.token_hex(32),
    "AIRFLOW_JWT_SECRET": secrets.token_hex(64),
    "AIRFLOW_UID": str(os.getuid() or 50000),  # root on the host: the image's own user
}

if __name__ == "__main__":
    for name, value in ENVIRONMENT.items():
        print(f"{name}={value}")
