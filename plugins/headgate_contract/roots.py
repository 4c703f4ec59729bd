"""Which text names a storage root: absolute, and on storage whose create is proved atomic. Looks at the text only.

Whoever reads a root from a person (a file, a variable, an option, a connection) has it checked before it is used: two
processes that understand one text differently would work on two roots, and nothing fences across two.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

from headgate_contract.credentials import carries_credentials, masked
from headgate_contract.errors import BadConfiguration
from headgate_contract.store import bucket_url, local_folder

_WRITE = "write an absolute folder (/srv/headgate), file:///srv/headgate or s3://bucket/folder"
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\}?)")
_WINDOWS = re.compile(r"[A-Za-z]:([\\/]|$)|\\\\")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def checked_root(text: str, said_by: str = "", near: Path | None = None) -> str:
    """`text`, if a root can be there. Raises BadConfiguration, with the absolute spelling where there is one.

    `said_by` is where it was written, and `near` the folder that a relative one was probably meant from.
    """
    root = text.strip()
    shown = f"the root {masked(root)!r}" + (f" ({said_by})" if said_by else "")
    if not root:
        raise BadConfiguration(f"{shown} is empty", hint=_WRITE)
    if carries_credentials(root):
        raise BadConfiguration(f"{shown} carries credentials", hint="give them in the environment or as options")
    variable = _VARIABLE.search(root)
    if variable is not None:  # a folder may be called so, but nobody means that
        raise BadConfiguration(f"{shown} holds {variable[0]}, which nobody fills in here", hint=_WRITE)
    if _WINDOWS.match(root):
        raise BadConfiguration(f"{shown} is a path of Windows, where Headgate does not run", hint=_WRITE)
    if "://" in root:
        _check_url(root, shown)
    elif not root.startswith("/"):
        _refuse_relative(root, shown, near)
    else:
        local_folder(root)
    return root


def _check_url(root: str, shown: str) -> None:
    try:
        scheme = urlsplit(root).scheme
    except ValueError as error:  # s3://[bucket
        raise BadConfiguration(f"{shown} is no URL: {error}", hint=_WRITE) from None
    if scheme == "file":
        local_folder(root)
    elif scheme in ("s3", "s3a"):
        bucket_url(root)
        if importlib.util.find_spec("s3fs") is None:
            raise BadConfiguration(f"{shown} is on S3, for which the package s3fs is missing", hint="pip install s3fs")
    elif scheme in ("http", "https"):
        hint = "write s3://bucket/folder; an S3 server's address goes into the options, as endpoint_url"
        raise BadConfiguration(f"{shown} is a web address, where nothing can be stored", hint=hint)
    elif scheme != "memory":
        raise BadConfiguration(
            f"{shown} is on {scheme!r}, which is not supported: no atomic create is proved for it", hint=_WRITE
        )


def _refuse_relative(root: str, shown: str, near: Path | None) -> None:
    if _SCHEME.match(root):
        raise BadConfiguration(f"{shown} is neither a folder nor a URL: '://' is missing", hint=_WRITE)
    at_home = root.startswith("~")
    whose = "each user would have one of his own" if at_home else "whoever reads it elsewhere would have another one"
    try:
        meant = Path(root).expanduser() if at_home else (near or Path.cwd()) / root
        hint = f"if {meant.resolve()} is meant, write that"
    except (OSError, RuntimeError, ValueError):  # a user that is not here, or no path at all
        hint = _WRITE
    raise BadConfiguration(f"{shown} is not absolute: {whose}", hint=hint)


def same_root(root: str) -> str:
    """The one spelling of a root that checked_root has let pass."""
    if "://" not in root or root.startswith("file:"):
        return local_folder(root).as_uri()
    return bucket_url(root) if root.startswith("s3") else root
