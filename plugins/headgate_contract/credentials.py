"""Finds credentials in URLs: what is stored and shown holds none, and an error about one does not repeat it."""

from __future__ import annotations

import re

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s'\",;]*)")
_QUERY = re.compile(
    r"(?P<name>[?&;](?:[\w.-]*(?:password|passwd|pwd|secret|token|signature|access_?key|account_?key)|sig)=)"
    r"(?P<value>[^\s'\"&;]+)",
    re.IGNORECASE,
)
_NAME_IS_ENOUGH = frozenset({"s3", "s3a", "s3n", "http", "https"})
"""Where a part before an `@` is a key or a token; elsewhere it may be a user or, on Azure, a container."""
_HIDDEN = "..."


_SECRET_KEY = re.compile(
    r"secret|password|passwd|passphrase|pwd|token|credential|(access|account|api|private)[._-]?key|\bsas\b",
    re.IGNORECASE,
)
"""What Spark hides itself in its logs and pages (spark.redaction.regex), and a little more."""


def is_secret(key: str) -> bool:
    """Does a setting of this name probably hold a secret?"""
    return _SECRET_KEY.search(key) is not None


def carries_credentials(text: str) -> bool:
    """Is there a URL in `text` with a password, a key or a token in it?"""
    return masked(text) != text


def masked(text: str) -> str:
    """`text` with dots instead of what is secret in its URLs."""
    hidden = _URL.sub(_without_user, text)
    return _QUERY.sub(rf"\g<name>{_HIDDEN}", hidden) if "://" in hidden else hidden


def _without_user(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"], found["rest"]
    user, at, place = rest.rpartition("@") if _has_user(scheme.lower(), rest) else ("", "", rest)
    return f"{scheme}://{_HIDDEN}@{place}" if at and user != _HIDDEN else found[0]


def _has_user(scheme: str, rest: str) -> bool:
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return scheme in _NAME_IS_ENOUGH or ":" in authority.rpartition("@")[0]
    if "@" not in rest or authority.startswith("["):
        return False
    # A secret may have a slash in it: the @ comes later then. What follows a host's colon is a port, and only digits.
    _, colon, port = authority.partition(":")
    return bool(colon) and (scheme.startswith("s3") or not port.isdecimal())
