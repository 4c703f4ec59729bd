"""The driver's process: `python -m headgate.driver --root URL --stream S --generation N --launch ID --work DIR`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

from headgate.driver.engine import Engine, EngineSetup
from headgate.driver.ledger import Ledger
from headgate.driver.lives import Lives, describe_error, is_final
from headgate.driver.log_file import take_over_output
from headgate.driver.loop import switch_threads_often
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup, own_launch
from headgate.job.loading import load_job
from headgate.job.tasks import graph_plan
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import Fenced, HeadgateError, LaunchFailed
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation, StreamName
from headgate_contract.records import Deployed, GenerationStarted, slot_log
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore, open_store

log = logging.getLogger("headgate.driver")

_SCRATCH = ("state", "engine")
_OWNER = "root"

FENCED = 10
"""The exit code of a driver that found its successor."""


def main() -> int:
    arguments = _arguments()
    switch_threads_often()
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    store = open_store(arguments.root, json.loads(os.environ.get("HEADGATE_ROOT_OPTIONS") or "{}"))
    stream, generation = StreamName(arguments.stream), Generation(arguments.generation)
    heart = Heart(store, stream, generation)
    try:
        store.check_writable()
        catalogue = read_catalogue(store, stream)
        started = own_launch(catalogue, generation, arguments.launch)
        deployed = _deployed(catalogue, started)
        settings = Settings(deployed.settings)
        take_over_output(Path(started.log), settings["headgate.log.max-size"], settings["headgate.log.backups"])
        heart.start(settings["heartbeat.interval"], started.log)
        heart.become(StreamState.RESTORING)
        _clean_up_after_earlier(work, store.url, generation)
        setup = _setup(store, stream, catalogue, started, deployed, settings, work)
        lives = Lives(setup, heart)
        _stop_on_signals(lives)
        lives.run()
    except Fenced as error:
        log.warning("%s", error)
        heart.become(StreamState.FENCED, str(error))
        return FENCED
    except BaseException as error:
        log.exception("the driver failed")
        heart.become(StreamState.FAILED, describe_error(error), given_up=is_final(error))
        return error.exit_code if isinstance(error, HeadgateError) else 1
    finally:
        heart.close()
    heart.become(StreamState.STOPPING)
    heart.become(StreamState.STOPPED)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headgate.driver", description=__doc__)
    for name in ("root", "stream", "launch", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--generation", type=int, required=True)
    return parser.parse_args()


def _deployed(catalogue: Catalogue, started: GenerationStarted) -> Deployed:
    deployed = catalogue.deployed_at(started.deployed)
    if deployed is None:
        raise LaunchFailed(f"the deployment {started.deployed} of stream {catalogue.stream} is not in the log")
    return deployed


def _setup(
    store: ObjectStore,
    stream: StreamName,
    catalogue: Catalogue,
    started: GenerationStarted,
    deployed: Deployed,
    settings: Settings,
    work: Path,
) -> LifeSetup:
    job, _ = load_job(Path(deployed.job), deployed.job_sha256)
    plan = graph_plan(job)
    engine_setup = EngineSetup(
        stream=stream,
        generation=started.generation,
        plan=plan,
        settings=settings,
        directory=work / "engine",
        log=started.log,
        shared=store.url,
    )
    return LifeSetup(
        store=store,
        stream=stream,
        started=started,
        catalogue=catalogue,
        slots=slot_log(store, stream),
        settings=settings,
        plan=plan,
        work=work,
        engine=_engine(engine_setup),
        points=KillPoints.of(os.environ),
        ledger_class=_ledger_class(),
    )


def _engine(setup: EngineSetup) -> Engine:
    if os.environ.get("HEADGATE_TEST_ENGINE") == "stand-in":
        from headgate.testing.stand_in import StandInEngine

        return StandInEngine(setup)
    from headgate.spark.engine import SparkEngine

    return SparkEngine(setup)


def _ledger_class() -> type[Ledger]:
    fault = os.environ.get("HEADGATE_TEST_BREAK")
    if fault:
        from headgate.testing.faults import broken_ledger

        return broken_ledger(fault)
    return Ledger


def _clean_up_after_earlier(work: Path, root: str, generation: Generation) -> None:
    """Delete what earlier generations of this very stream left in their scratch folders here; their logs stay.

    Each folder says which root its stream is on: another root's stream of the same name is another stream.
    """
    for folder in work.parent.glob("g*/"):
        owner, number = folder / _OWNER, folder.name[1:].partition("-")[0]
        if number.isdigit() and int(number) < generation and owner.is_file() and owner.read_text() == root:
            for scratch in _SCRATCH:
                shutil.rmtree(folder / scratch, ignore_errors=True)
    for scratch in _SCRATCH:
        shutil.rmtree(work / scratch, ignore_errors=True)
    (work / _OWNER).write_text(root)


def _stop_on_signals(lives: Lives) -> None:
    def stop(number: int, _: FrameType | None) -> None:
        lives.ask_to_stop(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(code)  # no thread of Spark's or a library's may keep a driver alive that has ended
