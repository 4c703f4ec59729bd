"""Loads a job file and finds the one Job in it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from headgate.job.job import Job
from headgate_contract.errors import HeadgateError, JobInvalid

JOB_FOLDER = "HEADGATE_JOB_FOLDER"
"""Tells Spark's workers the folder of the job file."""

_HEADGATE = Path(__file__).parent.parent


def load_job(path: Path, sha256: str | None = None) -> tuple[Job, ModuleType]:
    """Run the file at `path` as a module and return its Job and the module.

    What runs are the very bytes whose checksum is `sha256`, never compiled ones from an earlier time. The file's folder
    is the last on sys.path, here and in Spark's workers, so that the file can import its neighbours. Raises JobInvalid
    with the file's own traceback, shortened to what is the author's.
    """
    if not path.is_file():
        raise JobInvalid(f"there is no job file {path}", hint="give the path of a Python file")
    source = path.read_bytes()
    if sha256 is not None and hashlib.sha256(source).hexdigest() != sha256:
        raise JobInvalid(
            f"the job file {path} has changed since it was deployed",
            hint=f"deploy it again: `headgate deploy STREAM {path}`",
        )
    find_neighbours_of(path)
    name = "headgate_job_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.origin is None:
        raise JobInvalid(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(source, spec.origin, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, HeadgateError):
            raise JobInvalid(f"{path}{_author_line(error, path)}: {error.what}", hint=error.hint) from error
        raise JobInvalid(f"the job file {path} does not import: {shortened(error, path)}") from error
    jobs = {id(value): value for value in vars(module).values() if isinstance(value, Job)}
    if len(jobs) != 1:
        found = "no headgate.Job" if not jobs else f"{len(jobs)} jobs ({', '.join(job.name for job in jobs.values())})"
        raise JobInvalid(f"{path} holds {found} at its top level", hint="write exactly one: job = headgate.Job(...)")
    return next(iter(jobs.values())), module


def find_neighbours_of(path: Path) -> None:
    """Have the job file's neighbours found, behind everything else: they hide nothing of Python's or a library's."""
    folder = str(path.parent.absolute())
    os.environ[JOB_FOLDER] = folder
    if folder not in sys.path:
        sys.path.append(folder)


def shortened(error: BaseException, path: Path) -> str:
    """The error with the lines of the author's own folder on its way; a syntax error as Python shows it."""
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([f"{type(error).__name__}: {error}", *author_lines(error, path)])


def author_lines(error: BaseException, path: Path) -> list[str]:
    """The last lines of code of the author's own folder that led to the error, newest last."""
    folder = path.parent.absolute()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_authors(Path(frame.filename), folder)]
    return [f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-5:]]


def _is_authors(file: Path, folder: Path) -> bool:
    if not file.is_absolute() or not file.is_relative_to(folder):
        return False  # <frozen importlib._bootstrap> and its kin are no files
    return "site-packages" not in file.parts and not file.is_relative_to(_HEADGATE)


def _author_line(error: BaseException, path: Path) -> str:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.absolute()]
    return f", line {own[-1].lineno}" if own else ""
