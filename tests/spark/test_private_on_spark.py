"""What others on the host see of a session: no setting on a command line, no port but on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.spark

SECRET = r'not \ for "everybody": é=1 #'
LOOK = """
import json, os, sys
from pathlib import Path
import psutil
from headgate.spark.session import start_session, stop_session
from headgate_contract.settings import Settings

settings = Settings({"spark.master": sys.argv[2], "spark.hadoop.my.key": sys.argv[3], "spark.executor.memory": "512m"})
session = start_session("private", settings, Path(sys.argv[1]), lasting=False)
assert session.sparkContext.parallelize([1, 2], 2).map(lambda x: x + 1).sum() == 5
family = [psutil.Process(), *psutil.Process().children(recursive=True)]
def seen(look, processes):
    # what is there to be seen of those that have not ended meanwhile
    found = []
    for each in processes:
        try:
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(look(each))
        except psutil.NoSuchProcess:
            pass
    return found
folder = Path(session.conf.get("spark.python.unix.domain.socket.dir"))
told = {
    "commands": seen(lambda one: one.cmdline(), family[1:]),
    "ports": sorted({each.laddr.ip for found in seen(lambda one: one.net_connections(), family) for each in found
                     if each.status == "LISTEN"}),
    "kept": session.sparkContext._jsc.hadoopConfiguration().get("my.key"),
    "authenticate": session.sparkContext.getConf().get("spark.authenticate", "false"),
    "name": session.sparkContext.appName,
    "sockets": len(list(folder.iterdir())),
}
stop_session(session)
print(json.dumps({**told, "left": folder.exists(), "submit": os.environ.get("PYSPARK_SUBMIT_ARGS")}))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize(("master", "authenticates"), [("local[1]", "false"), ("local-cluster[1,1,600]", "true")])
def test_nobody_else_reads_the_settings_or_reaches_a_port(tmp_path: Path, master: str, authenticates: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK, str(tmp_path / "work"), master, SECRET],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(REPO / package) for package in ("plugins", "spark_jobs")),
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    commands = [" ".join(command) for command in told["commands"]]
    assert any("java" in command for command in commands)
    assert not [command for command in commands if "my.key" in command or "not \\ for" in command]
    assert not [command for command in commands if "authenticate.secret" in command]
    assert {ip.removeprefix("::ffff:") for ip in told["ports"]} <= {"127.0.0.1", "::1"}, told["ports"]
    assert told["kept"] == SECRET
    assert told["authenticate"] == authenticates
    assert told["sockets"] > 0
    assert (told["name"], told["left"], told["submit"]) == ("private", False, None)
    (conf,) = tmp_path.rglob("spark.conf")
    assert conf.stat().st_mode & 0o077 == 0
