"""Deploys a job: has it validated in a bounded subprocess, then records it as what the stream's next start runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue
from headgate_contract.durations import Duration
from headgate_contract.errors import BadInput, Conflict, JobInvalid
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.paths import StreamPaths
from headgate_contract.records import Deployed
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.journal import now_ms
from headgate_control.logs import root_cause

CHECK_TIMEOUT = Duration(300_000)
"""Far above what a check takes, Spark's start included, on a machine that is busy with other things."""
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
        command = [*self.programs.check, str(job), "--settings", json.dumps(settings.given), *flags]
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        try:
            said, complained = process.communicate(timeout=self.timeout.seconds)
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
    store: ObjectStore
    catalogues: Catalogues
    checker: Checker

    def deploy(
        self, stream: StreamName, job: Path, given: Mapping[str, object], directory: Path, by: str
    ) -> tuple[SlotNumber, Deployed]:
        """Validate and record; the decision's number. What is deployed already is not recorded again."""
        self.store.check_writable()
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
        return wanted

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
        self.store.replace(StreamPaths(stream).readable, wire.encode("stream", readable))
        return number, deployed

    def _record(self, stream: StreamName, wanted: Deployed) -> tuple[SlotNumber, Deployed]:
        known = self.catalogues.look(stream)
        now, number = known.deployed, known.deployed_number
        if now is not None and number is not None and _essence(now) == _essence(wanted):
            return number, replace(now, plan=wanted.plan)
        return self.catalogues.decide(stream, wanted).number, wanted


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
