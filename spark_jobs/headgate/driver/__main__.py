"""The driver's process: `python -m headgate.driver --root URL --root-id ID --stream S --generation N ...`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from headgate.driver.engine import Engine, EngineSetup
from headgate.driver.ledger import Ledger
from headgate.driver.lives import Lives, describe_error, is_final
from headgate.driver.log_file import take_over_output
from headgate.driver.loop import switch_threads_often
from headgate.driver.points import KillPoints
from headgate.driver.processes import end_all
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup, own_launch
from headgate.driver.telling import tell
from headgate.driver.watchdog import Actions, Watchdog
from headgate.job.loading import load_job
from headgate.job.tasks import graph_plan
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import Fenced, HeadgateError, LaunchFailed, RootLost
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation, StreamName
from headgate_contract.modes import make_private
from headgate_contract.records import Deployed, GenerationStarted, slot_log
from headgate_contract.root_store import open_root
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore

log = logging.getLogger("headgate.driver")

_SCRATCH = ("state", "engine")
_OWNER = "root"
_GRACE_S = 2.0
"""How long the JVM of a driver that has failed may take to tidy up."""

FENCED = 10
"""The exit code of a driver that found its successor."""


def main() -> int:
    arguments = _arguments()
    switch_threads_often()
    work = Path(arguments.work)
    make_private(work, work.parent.parent)
    try:
        options = json.loads(os.environ.get("HEADGATE_ROOT_OPTIONS") or "{}")
        store = open_root(arguments.root, options, arguments.root_id)
    except HeadgateError as error:
        log.error("%s", error)
        return error.exit_code
    stream, generation = StreamName(arguments.stream), Generation(arguments.generation)
    heart = Heart(store, stream, generation)
    try:
        store.check_writable()
        heart.start()  # before the log is read: whoever launched this waits for a sign of life
        catalogue = read_catalogue(store, stream)
        started = own_launch(catalogue, generation, arguments.launch)
        deployed = _deployed(catalogue, started)
        settings = Settings(deployed.settings)
        take_over_output(Path(started.log), settings["headgate.log.max-size"], settings["headgate.log.backups"])
        heart.know(settings["heartbeat.interval"], started.log)
        heart.become(StreamState.RESTORING)
        _clean_up_after_earlier(work, store.url, generation)
        setup = _setup(store, stream, catalogue, started, deployed, settings, work)
        lives = Lives(setup, heart)
        _stop_on_signals(lives)
        actions = Actions(end_life=lives.end_life, tell=lives.tell_standstill)
        watchdog = Watchdog(setup.under_way, settings, heart, actions)
        heart.beats_while = partial(watchdog.is_awake, settings["heartbeat.timeout"].seconds)
        watchdog.start()
        lives.run()
    except Fenced as error:
        log.warning("%s", error)
        end_all(_GRACE_S)
        heart.become(StreamState.FENCED, str(error))
        return FENCED
    except RootLost as error:
        log.error("%s", error)
        heart.become(StreamState.FAILED, str(error))
        return error.exit_code
    except BaseException as error:
        log.exception("the driver failed")
        end_all(_GRACE_S)
        heart.become(StreamState.FAILED, describe_error(error), given_up=is_final(error))
        return error.exit_code if isinstance(error, HeadgateError) else 1
    finally:
        heart.close()
    heart.become(StreamState.STOPPING)
    heart.become(StreamState.STOPPED)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headgate.driver", description=__doc__)
    for name in ("root", "root-id", "stream", "launch", "work"):
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
    slots = slot_log(store, stream)
    slots.newest_known = catalogue.newest_slot or 0
    engine_setup = EngineSetup(
        stream=stream,
        generation=started.generation,
        plan=plan,
        settings=settings,
        directory=work / "engine",
        log=started.log,
        root=store,
        say=lambda text: tell(store, stream, started.generation, "source", "FAILED", text, slot=slots.newest_known),
    )
    return LifeSetup(
        store=store,
        stream=stream,
        started=started,
        catalogue=catalogue,
        slots=slots,
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
