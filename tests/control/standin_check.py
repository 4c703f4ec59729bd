"""A check of job files without Spark: it runs the file as Python and prints the plan that the file itself states.

The file may set SINKS ({uid: rollback}) and SINK_PATHS ({uid: path}); CHECK = "hangs" never ends, CHECK = "dies" prints
no verdict, CHECK = 0.5 takes half a second.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
import traceback

import headgate_contract  # noqa: F401  (the environment must let it be found)


def main() -> None:
    if sys.argv[2:4] == ["--settings", "-"]:
        json.load(sys.stdin)
    try:
        job = runpy.run_path(sys.argv[1])
    except Exception as error:  # noqa: BLE001  (whatever the job's author wrote)
        trace = traceback.format_exc().splitlines()[-3:]
        print(json.dumps({"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": "\n".join(trace)}))
        sys.exit(2)
    if job.get("CHECK") == "hangs":
        threading.Event().wait(600)
    if isinstance(job.get("CHECK"), float):
        time.sleep(job["CHECK"])
    if job.get("CHECK") == "dies":
        os._exit(7)
    sinks = {uid: {"kind": "files", "rollback": how} for uid, how in job.get("SINKS", {"out": "retract"}).items()}
    for uid, path in job.get("SINK_PATHS", {}).items():
        sinks[uid]["path"] = path
    print("chatter of the job file")
    if "--sinks" in sys.argv:
        held = {"sinks": job.get("HOLDINGS", {uid: {} for uid in sinks})}
        print(json.dumps({"ok": True, "plan": held, "warnings": []}))
        return
    plan = {"job": "standin", "vertices": [], "sources": {}, "sinks": sinks}
    print(json.dumps({"ok": True, "plan": plan, "warnings": job.get("WARNINGS", [])}))


if __name__ == "__main__":
    main()
