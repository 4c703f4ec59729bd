"""Finds modules beside a job file that it imports in vain: others of the same name, Python's own say, come first."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from headgate_contract.errors import JobInvalid


def check_neighbours(path: Path) -> None:
    """Raise JobInvalid if the job at `path`, or a neighbour that it imports, means a neighbour and gets another module.

    The job's folder is the last on sys.path, so that nothing in it can take the place of a library. A file that does
    not parse is left to whoever runs it.
    """
    seen, pending = {path}, [path]
    while pending:
        file = pending.pop()
        for name, line in _imports(file):
            neighbour = _neighbour(path.parent, name)
            if neighbour is None or neighbour in seen:
                continue
            instead = _found_instead(name, path.parent)
            if instead is not None:
                raise JobInvalid(
                    f"{file}, line {line} imports {name!r} and gets {instead}, not {neighbour} beside it",
                    hint=f"rename {neighbour.name if neighbour.stem == name else name}: a job's own folder is the "
                    "last place where modules are looked for",
                )
            seen.add(neighbour)
            pending.append(neighbour)


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """The first parts of the names that `file` imports, wherever in it, and on which lines."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node.lineno


def _neighbour(folder: Path, name: str) -> Path | None:
    for file in (folder / name / "__init__.py", folder / f"{name}.py"):
        if file.is_file():
            return file
    return None


def _found_instead(name: str, folder: Path) -> str | None:
    """What an import of `name` finds elsewhere than in `folder`, or None when it finds the neighbour."""
    if name in sys.stdlib_module_names:
        return "Python's own"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    origin = spec.origin if spec is not None else None
    if origin is None or Path(origin).resolve().is_relative_to(folder.resolve()):
        return None
    return str(origin)
