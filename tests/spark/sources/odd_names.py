"""Names of files that Spark, Hadoop, a shell or a URI takes for something else than a name."""

from __future__ import annotations

import os
from pathlib import Path

READ = [
    *(b"plain", b"a b", b" ", b"quote'\"x", b"`", b"^", b"&", b";", b"|<>", b"$HOME", b"a@b", b"~", b"-", b"t~"),
    *(b"pc%", b"pc%20", b"hash#1", b"plus+", b"a,b", b"a=b.txt", b"_k=v.txt", b"t.crc"),
    *(b"new\nline", b"tab\tx", b"\x01\x7f", b"Case", b"case"),
    *("ünïcödé😀".encode(), "é".encode(), "e\u0301".encode(), b"x" * 255),
    *(b"colon:x", b"2024-01-01T12:30:00.txt"),
]
PATTERNS = [
    *(b"star*", b"q?", b"b[1]", b"b1", b"c{a,b}", b"a", b"back\\slash", b"*", b"[", b"{a", b"\\", b"**"),
    *(b"\xc3\xa4[1]", b"x:[1]", b"x:1", b"[^a]", b"[a-z]", b"%5B1%5D", b"[1] {a,b} %20*"),
]
HIDDEN = [b".dot", b"_under", b".t.txt", b"c._COPYING_", b"_metadata", b".hidden/x"]
NOT_UTF8 = [b"bad\xff\xfe"]
ELSEWHERE = [b"sub/deep", b"[sub]/deep"]


def put(folder: Path, name: bytes, text: str, *, modified: float = 1_700_000_000) -> None:
    """Make a file whole at once, as old as it says."""
    path, temp = os.path.join(os.fsencode(folder), name), os.path.join(os.fsencode(folder.parent), b"half-written")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(temp, "w") as file:
        file.write(text)
    os.utime(temp, (modified, modified))
    os.rename(temp, path)
