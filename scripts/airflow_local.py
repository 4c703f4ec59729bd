"""Runs a small, real Airflow here: SQLite, LocalExecutor, free ports; started healthy, stopped without leftovers."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

REPO = Path(__file__).resolve().parent.parent
SERVICES: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
"""In the order in which they start: the others need the API server."""
HEALTH = {"metadatabase": "status", "scheduler": "status", "triggerer": "status", "dag_processor": "status"}
STOP_S = 15.0
TRIES = 5
"""So often a question is asked: on a busy machine SQLite is locked now and then, or an answer comes too late."""
PAUSE_S = 1.0
FINISHED = ("success", "failed")


class LocalAirflowFailed(RuntimeError):
    """Airflow did not start, or did not do what was asked; the message holds the end of the log that tells why."""


@dataclass(frozen=True)
class Leader:
    """A service's first process; its start time tells it from another process with a reused pid."""

    name: str
    pid: int
    created: float

    def process(self) -> psutil.Process | None:
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.created) < 1.0 and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return found if same else None

    def session(self) -> list[psutil.Process]:
        """Every process that the service started and that did not leave its session."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.create_time() >= self.created - 1.0:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue  # it ended while we looked
        return found


@dataclass
class LocalAirflow:
    """One Airflow below `home`. `environment` is added to what its processes see."""

    home: Path
    dags: Path = REPO / "dags"
    plugins: Path = REPO / "plugins"
    environment: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = lambda line: None
    user: str = "admin"

    def __post_init__(self) -> None:
        self.home = self.home.absolute()
        known = json.loads(self._state.read_text()) if self._state.exists() else {}
        self.port: int = known.get("port", 0)
        self.password: str = known.get("password", "")
        self.leaders = [Leader(**leader) for leader in known.get("leaders", ())]
        self._token = ""

    # -- starting and stopping

    def start(self, timeout_s: float = 300.0) -> None:
        """Start everything and wait until it is healthy; on any failure, and on Ctrl-C, nothing is left running."""
        if any(leader.process() for leader in self.leaders):
            raise LocalAirflowFailed(f"Airflow runs below {self.home} already, at {self.url}; stop it first")
        self.port = self.port if self.port and _is_free(self.port) else _free_port()
        self.password = self.password or secrets.token_urlsafe(9)
        self.leaders = []
        self._logs.mkdir(parents=True, exist_ok=True)
        _write_private(self._passwords, json.dumps({self.user: self.password}) + "\n")
        try:
            self._migrate()
            deadline = time.monotonic() + timeout_s
            for name, arguments in SERVICES.items():
                self._launch(name, arguments)
                if name == "api-server":
                    self._await("the API server", self._answers, deadline)
            self._await("all four services", self.healthy, deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every service: TERM to the leaders, KILL to what is left of their sessions. Safe to repeat."""
        sessions = [process for leader in self.leaders for process in leader.session()]
        leaders = {leader.name: process for leader in self.leaders if (process := leader.process()) is not None}
        for process in reversed(leaders.values()):
            process.terminate()
        # The triggerer lingers for ten seconds. It need not be waited for: what its triggers look at is in storage.
        psutil.wait_procs([process for name, process in leaders.items() if name != "triggerer"], timeout=STOP_S)
        left = {*sessions, *(process for leader in self.leaders for process in leader.session())}
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue  # it ended by itself
        psutil.wait_procs(list(left), timeout=STOP_S)
        self.leaders = []
        self._remember()

    @contextmanager
    def running(self) -> Iterator[LocalAirflow]:
        """Started inside the block, stopped behind it."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def healthy(self) -> bool:
        """Do all four services say that they are well?"""
        try:
            answer = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=10.0)
        except httpx.TransportError:
            return False
        states = answer.json() if answer.status_code == 200 else {}
        return all((states.get(name) or {}).get(key) == "healthy" for name, key in HEALTH.items())

    # -- what one asks of it

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, method: str, path: str, body: object = None, *, accept: tuple[int, ...] = (200, 201)) -> Any:
        """Call the public API, `path` being what follows /api/v2; logs in when that is needed."""
        for attempt in (1, 2):
            if not self._token:
                self._log_in()
            answer = self._ask(method, path, body)
            if answer.status_code != 401 or attempt == 2:
                break
            self._token = ""
        if answer.status_code not in accept:
            raise LocalAirflowFailed(f"{method} {path} was answered {answer.status_code}: {answer.text[:2000]}")
        return answer.json() if answer.content and "json" in answer.headers.get("content-type", "") else answer.text

    def _ask(self, method: str, path: str, body: object) -> httpx.Response:
        """The answer. What changes nothing is asked again, while the server is too busy to answer it."""
        headers = {"Authorization": f"Bearer {self._token}"}
        for left in range(TRIES - 1 if method == "GET" else 0, -1, -1):
            try:
                answer = httpx.request(method, f"{self.url}/api/v2{path}", json=body, headers=headers, timeout=30.0)
            except httpx.TransportError as error:
                if not left:
                    raise LocalAirflowFailed(f"{method} {path} was not answered: {error!r}") from error
            else:
                if answer.status_code < 500 or not left:
                    return answer
            time.sleep(PAUSE_S)
        raise AssertionError("not reached: the last try returns or raises")

    def wait_for_dag(self, dag: str, timeout_s: float = 180.0) -> None:
        """Wait until `dag` was parsed. Raises with the import errors if it does not come."""

        def known() -> bool:
            return "dag_id" in self.api("GET", f"/dags/{dag}", accept=(200, 404))

        try:
            self._await(f"the DAG {dag}", known, time.monotonic() + timeout_s)
        except LocalAirflowFailed as failure:
            errors = [error["stack_trace"] for error in self.api("GET", "/importErrors")["import_errors"]]
            raise LocalAirflowFailed("\n".join([str(failure), *errors])) from None

    def trigger_dag(self, dag: str, conf: Mapping[str, object] | None = None, *, run_id: str | None = None) -> str:
        """Start a run of `dag`; its id."""
        self.wait_for_dag(dag)
        body = {"logical_date": None, "conf": dict(conf or {}), **({"dag_run_id": run_id} if run_id else {})}
        run: str = self.api("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"]
        return run

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """The runs of `dag`, newest first."""
        found: list[dict[str, Any]] = self.api("GET", f"/dags/{dag}/dagRuns?order_by=-id&limit=50")["dag_runs"]
        return found

    def wait_run(self, dag: str, run_id: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Wait for the end of a run. Raises with its failed tasks' logs if it does not succeed."""
        state: dict[str, Any] = {}

        def ended() -> bool:
            nonlocal state
            state = self.api("GET", f"/dags/{dag}/dagRuns/{run_id}")
            return state["state"] in FINISHED

        self._await(f"run {run_id} of {dag}", ended, time.monotonic() + timeout_s)
        if state["state"] != "success":
            raise LocalAirflowFailed(f"run {run_id} of {dag} failed\n{self.failures(dag, run_id)}")
        return state

    def tasks(self, dag: str, run_id: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        found: list[dict[str, Any]] = self.api("GET", f"/dags/{dag}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return found

    def returned(self, dag: str, run_id: str, task: str, map_index: int = -1) -> Any:
        """What a task returned."""
        path = f"/dags/{dag}/dagRuns/{run_id}/taskInstances/{task}/xcomEntries/return_value"
        return self.api("GET", f"{path}?map_index={map_index}&deserialize=true")["value"]

    def task_log(self, dag: str, run_id: str, task: str, try_number: int = 1, map_index: int = -1) -> str:
        """A task's log as lines of text."""
        path = f"/dags/{dag}/dagRuns/{run_id}/taskInstances/{task}/logs/{try_number}?map_index={map_index}"
        content = self.api("GET", path)["content"]
        return "\n".join(str(line.get("event", line) if isinstance(line, dict) else line) for line in content)

    def failures(self, dag: str, run_id: str) -> str:
        """The logs of the tasks of a run that did not succeed."""
        return "\n".join(
            f"-- {task['task_id']} [{task['map_index']}] is {task['state']}\n"
            + self.task_log(dag, run_id, task["task_id"], max(task["try_number"], 1), task["map_index"])
            for task in self.tasks(dag, run_id)
            if task["state"] not in ("success", "skipped", None)
        )

    # -- inside

    @property
    def _state(self) -> Path:
        return self.home / "local_airflow.json"

    @property
    def _passwords(self) -> Path:
        return self.home / "passwords.json"

    @property
    def _logs(self) -> Path:
        return self.home / "services"

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return {
            **inherited,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.plugins),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "PYTHONUNBUFFERED": "1",
            **self.environment,
        }

    def _migrate(self) -> None:
        self.say("migrating Airflow's database")
        with (self._logs / "migrate.log").open("wb") as log:
            ran = subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if ran.returncode != 0:
            raise LocalAirflowFailed(f"`airflow db migrate` failed:\n{self._tail('migrate')}")

    def _launch(self, name: str, arguments: tuple[str, ...]) -> None:
        self.say(f"starting Airflow's {name}")
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *arguments],
                env=self._environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.leaders.append(Leader(name, process.pid, psutil.Process(process.pid).create_time()))
        self._remember()

    def _await(self, what: str, condition: Callable[[], bool], deadline: float) -> None:
        """Wait for `condition`, but not longer than the services live."""
        while not condition():
            dead = [leader.name for leader in self.leaders if leader.process() is None]
            if dead:
                raise LocalAirflowFailed(f"Airflow's {dead[0]} has ended:\n{self._tail(dead[0])}")
            if time.monotonic() > deadline:
                raise LocalAirflowFailed(f"{what} did not come in time; the logs are in {self._logs}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v2/version", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def _log_in(self) -> None:
        answer = httpx.post(
            f"{self.url}/auth/token", json={"username": self.user, "password": self.password}, timeout=30.0
        )
        if answer.status_code not in (200, 201):
            raise LocalAirflowFailed(f"the log-in was answered {answer.status_code}: {answer.text[:500]}")
        self._token = answer.json()["access_token"]

    def _remember(self) -> None:
        known = {
            "port": self.port,
            "password": self.password,
            "leaders": [asdict(leader) for leader in self.leaders],
        }
        _write_private(self._state, json.dumps(known) + "\n")

    def _tail(self, name: str, lines: int = 40) -> str:
        log = self._logs / f"{name}.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("start", "stop", "status"))
    parser.add_argument("home", type=Path, nargs="?", default=REPO / "work" / "airflow", help="Airflow's home")
    parser.add_argument("--dags", type=Path, default=REPO / "dags", help="the DAGs folder")
    arguments = parser.parse_args()
    airflow = LocalAirflow(arguments.home, dags=arguments.dags.absolute(), say=print)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if arguments.verb == "start":
            airflow.start()
            print(f"Airflow is at {airflow.url}, user {airflow.user}, password {airflow.password}")
        elif arguments.verb == "stop":
            airflow.stop()
        else:
            alive = [leader.name for leader in airflow.leaders if leader.process()]
            print(f"{', '.join(alive) or 'nothing'} runs; healthy: {bool(alive) and airflow.healthy()}; {airflow.url}")
    except LocalAirflowFailed as failure:
        sys.exit(f"airflow: {failure}")


if __name__ == "__main__":
    main()
