"""Keeps which cells of a long command have passed on a commit, so that a run that was broken off goes on from them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path


class KeptCells:
    """The cells that passed with these arguments on this very commit; none where the tree differs from it."""

    def __init__(self, repository: Path, command: str, *arguments: object) -> None:
        commit = _commit(repository)
        name = re.sub(r"[^\w.=-]+", "_", "-".join(map(str, (command, *arguments))))
        self._file = repository / "work" / "kept" / f"{commit}-{name}.txt" if commit else None

    def lines(self) -> dict[str, str]:
        """What was said of each cell that has passed."""
        if self._file is None or not self._file.exists():
            return {}
        found = (line.partition("\t") for line in self._file.read_text().splitlines())
        return {cell: said for cell, tab, said in found if tab}

    def keep(self, cell: str, said: str) -> None:
        """It has passed."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as file:
                file.write(f"{cell}\t{' '.join(said.split())}\n")


def _commit(repository: Path) -> str:
    """The commit that the tree is, or "" if it differs from one or there is none."""

    def git(*arguments: str) -> str:
        command: Sequence[str] = ("git", "-C", str(repository), *arguments)
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.stdout.strip() if ran.returncode == 0 else "?"

    return "" if git("status", "--porcelain") else git("rev-parse", "--short=12", "HEAD").replace("?", "")
