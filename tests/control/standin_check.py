"""A check of job files without Spark: it runs the file as Python and prints the plan that the file itself states.

The file may set SINKS ({uid: rollback}); CHECK = "hangs" never ends, CHECK = "dies" prints no verdict.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import traceback

import headgate_contract  # noqa: F401  (the environment must let it be found)


def main() -> None:
    try:
        job = runpy.run_path(sys.argv[1])
    except Exception as error:  # noqa: BLE001  (whatever the job's author wrote)
        trace = traceback.format_exc().splitlines()[-3:]
        print(json.dumps({"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": "\n".join(trace)}))
        sys.exit(2)
    if job.get("CHECK") == "hangs":
        threading.Event().wait(600)
    if job.get("CHECK") == "dies":
        os._exit(7)
    sinks = {uid: {"kind": "files", "rollback": how} for uid, how in job.get("SINKS", {"out": "retract"}).items()}
    print("chatter of the job file")
    plan = {"job": "standin", "vertices": [], "sources": {}, "sinks": sinks}
    print(json.dumps({"ok": True, "plan": plan, "warnings": job.get("WARNINGS", [])}))


if __name__ == "__main__":
    main()
