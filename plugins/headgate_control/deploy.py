"""Deploys a job: has it validated in a bounded subprocess, then records it as what the stream's next start runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue
from headgate_contract.durations import Duration
from headgate_contract.errors import BadInput, Conflict, HeadgateError, JobInvalid, NotARoot, StorageError
from headgate_contract.evidence import read_copy
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.moved import Moves, moved_since
from headgate_contract.paths import StreamPaths
from headgate_contract.records import Deployed
from headgate_contract.root_store import RootStore, make_root, prepare_root
from headgate_contract.settings import Settings
from headgate_control.catalogues import Catalogues
from headgate_control.journal import now_ms
from headgate_control.logs import root_cause
from headgate_control.neighbours import shared_folders

CHECK_TIMEOUT = Duration(300_000)
"""Far above what a check takes, Spark's start included, on a machine that is busy with other things."""
_AT_ONCE = 16
WARNINGS = "warnings"
"""Where the plan holds what the check found worth saying."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The commands of the Spark environment; their arguments are added.

    With -P: they run in a person's folder, whose files must not be taken for libraries of the same name.
    """

    driver: tuple[str, ...] = (sys.executable, "-P", "-m", "headgate.driver")
    check: tuple[str, ...] = (sys.executable, "-P", "-m", "headgate.job.check")


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Runs the check of a job file, in the environment that its driver will have."""

    programs: Programs
    environment: Mapping[str, str]
    timeout: Duration = CHECK_TIMEOUT

    def graph(self, job: Path, settings: Settings, directory: Path) -> dict[str, Any]:
        """What the job's graph is cut into, without a check of anything else. Raises JobInvalid as `plan` does."""
        return self.plan(job, settings, directory, "--graph")

    def plan(self, job: Path, settings: Settings, directory: Path, *flags: str) -> dict[str, Any]:
        """The job's plan. Raises JobInvalid with the job's own error."""
        command = [*self.programs.check, str(job), "--settings", "-", *flags]  # everybody reads a command line
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        try:
            said, complained = process.communicate(json.dumps(settings.given), timeout=self.timeout.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise JobInvalid(
                f"the job {job} was not checked within {self.timeout}",
                hint="a job file only builds a graph: move slow work into sources and transforms",
            ) from None
        return self._read(job, directory, said, complained, process.returncode)

    def _read(self, job: Path, directory: Path, said: str, complained: str, code: int) -> dict[str, Any]:
        lines = [line for line in said.splitlines() if line.strip()]
        try:
            verdict = json.loads(lines[-1]) if lines else None
        except json.JSONDecodeError:
            verdict = None
        if not isinstance(verdict, dict) or "ok" not in verdict:
            why = root_cause(complained.splitlines(), str(job), str(directory))
            raise JobInvalid(f"the check of {job} ended with exit code {code} and no verdict: {why}")
        if not verdict["ok"]:
            trace = str(verdict.get("traceback") or "").rstrip()
            raise JobInvalid(f"the job {job} cannot run: {verdict.get('error')}" + (f"\n{trace}" if trace else ""))
        return {**verdict["plan"], WARNINGS: verdict.get("warnings", [])}


@dataclass(frozen=True, kw_only=True)
class Deployer:
    store: RootStore
    catalogues: Catalogues
    checker: Checker

    def has_root(self) -> bool:
        """Whether there is a root to deploy on."""
        try:
            self.store.identity()
        except NotARoot:
            return False
        return True

    def deploy_first(
        self,
        stream: StreamName,
        job: Path,
        given: Mapping[str, object],
        directory: Path,
        by: str,
        *,
        adopt: bool,
    ) -> tuple[SlotNumber, Deployed]:
        """Make the root, and deploy on it: a job that cannot run leaves none behind."""
        prepare_root(self.store, adopt=adopt)
        wanted = self.checked(stream, job, given, directory, by)
        make_root(self.store, by=by, at_ms=now_ms(), adopt=adopt)
        return self.record(stream, wanted)

    def deploy(
        self, stream: StreamName, job: Path, given: Mapping[str, object], directory: Path, by: str
    ) -> tuple[SlotNumber, Deployed]:
        """Validate and record; the decision's number. What is deployed already is not recorded again."""
        return self.record(stream, self.checked(stream, job, given, directory, by))

    def checked(self, stream: StreamName, job: Path, given: Mapping[str, object], directory: Path, by: str) -> Deployed:
        """Validate only: what may be recorded."""
        settings = Settings(given)
        job, directory = job.absolute(), directory.absolute()
        content = read_job(job)
        if not directory.is_dir():
            raise BadInput(f"the working directory {directory} of stream {stream} is not a folder")
        wanted = Deployed(
            job=str(job),
            job_sha256=wire.sha256(content),
            directory=str(directory),
            settings=settings.given,
            plan=self.checker.plan(job, settings, directory),
            by=by,
            at_ms=now_ms(),
        )
        if read_job(job) != content:
            raise Conflict(f"the job file {job} changed while it was checked", hint="deploy it again")
        shared = shared_folders(stream, wanted, self._others(stream))
        moved = self._moved(stream, wanted)
        return replace(wanted, plan={**wanted.plan, WARNINGS: [*warnings_of(wanted), *shared, *moved]})

    def _moved(self, stream: StreamName, wanted: Deployed) -> tuple[str, ...]:
        """What is at another place than in the newest generation: a start goes on from that one's snapshots."""
        try:
            moves = moved_since(self.catalogues.look(stream), None, wanted) if self.has_root() else Moves()
        except HeadgateError:  # whoever needs the log will tell; this is only a warning
            return ()
        sources = (
            f"source {uid} was read from {move.before}, and reads {move.now} now: a start from a snapshot is refused, "
            "because its position names files by their paths (`headgate explain` tells what can be done)"
            for uid, move in sorted(moves.sources.items())
        )
        sinks = (
            f"sink {uid} wrote to {move.before}, and writes to {move.now} now: what it published there stays there, "
            "and a restore to before the change does not take it back"
            for uid, move in sorted(moves.sinks.items())
        )
        return (*sources, *sinks)

    def _others(self, stream: StreamName) -> dict[StreamName, Deployed]:
        """What the other streams of this root run, by the copies that are for people: it is only for a warning."""

        def read(name: StreamName) -> Deployed | None:
            try:
                copy = read_copy(self.store, name)
            except StorageError:
                return None
            return copy.deployed if copy is not None else None

        names = [name for name in self.catalogues.names() if name != stream] if self.has_root() else []
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = dict(zip(names, pool.map(read, names), strict=True))
        return {name: deployed for name, deployed in found.items() if deployed is not None}

    def rescaled(self, catalogue: Catalogue, parallelism: int, by: str) -> Deployed:
        """What is deployed, at another parallelism, and validated. Nothing is recorded."""
        stream, (_, deployed) = catalogue.stream, self.catalogues.deployed(catalogue)
        check_unchanged(stream, deployed)
        settings = {**deployed.settings, "parallelism.default": parallelism}
        return self.checked(stream, Path(deployed.job), settings, Path(deployed.directory), by)

    def record(self, stream: StreamName, wanted: Deployed) -> tuple[SlotNumber, Deployed]:
        """Make what was checked the job of the stream's next start; the decision's number."""
        number, deployed = self._record(stream, wanted)
        readable = {"stream": stream, "number": number, "root": self.store.url, "deployed": deployed}
        path = StreamPaths(stream).readable
        self.store.replace(path, wire.encode("stream", readable, path))
        return number, deployed

    def _record(self, stream: StreamName, wanted: Deployed) -> tuple[SlotNumber, Deployed]:
        known = self.catalogues.look(stream)
        now, number = known.deployed, known.deployed_number
        if now is not None and number is not None and is_same(now, wanted):
            return number, replace(now, plan=wanted.plan)
        return self.catalogues.decide(stream, wanted).number, wanted


def is_same(one: Deployed, other: Deployed) -> bool:
    """Whether they run the same, whoever deployed them and when."""
    return _essence(one) == _essence(other)


def _essence(deployed: Deployed) -> Deployed:
    """What must differ for a deployment to be another one."""
    plan = {key: value for key, value in deployed.plan.items() if key != WARNINGS}
    return replace(deployed, by="", at_ms=0, plan=plan)


def warnings_of(deployed: Deployed) -> tuple[str, ...]:
    """What the check found worth saying."""
    return tuple(str(warning) for warning in deployed.plan.get(WARNINGS, []))


def read_job(job: Path) -> bytes:
    """The bytes of a job file. Raises BadInput."""
    try:
        return job.read_bytes()
    except OSError as error:
        raise BadInput(
            f"the job file {job} cannot be read: {error.strerror}", hint="give the path of the job's Python file"
        ) from None


def is_unchanged(deployed: Deployed) -> bool:
    """Does the job file still hold what was deployed?"""
    try:
        return wire.sha256(Path(deployed.job).read_bytes()) == deployed.job_sha256
    except OSError:
        return False


def check_unchanged(stream: StreamName, deployed: Deployed) -> None:
    """Raise Conflict if the job file is no longer what was deployed and checked."""
    if wire.sha256(read_job(Path(deployed.job))) != deployed.job_sha256:
        raise Conflict(
            f"the job file {deployed.job} of stream {stream} has changed since it was deployed",
            hint=f"deploy it again: `headgate deploy {stream} {deployed.job}` (with its settings)",
        )
