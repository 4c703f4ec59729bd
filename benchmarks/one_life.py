"""A whole life of a driver in this process, on the Spark session that is there: what benchmarks measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import functions as F

import headgate
from headgate.driver.engine import EngineSetup
from headgate.driver.ledger import Ledger
from headgate.driver.lives import Lives
from headgate.driver.loop import switch_threads_often
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup
from headgate.job.tasks import graph_plan
from headgate.spark.engine import SparkEngine
from headgate_contract.catalogue import read_catalogue
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.records import Deployed, GenerationStarted, decision_log, slot_log
from headgate_contract.restore import StartFresh
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore, open_store

STREAM = StreamName("bench")
Measured = TypeVar("Measured", bound="SharedSession")


def counting_job(rows: int, keys: int) -> headgate.Job:
    """Counts by key. The factor has no divisor in common with `keys`: any `keys` records in a row have all of them."""
    job = headgate.Job("bench")
    records = job.source("records", headgate.sources.rate(rows_per_batch=rows))
    keyed = records.transform(lambda df: df.select(F.pmod(F.col("value") * 2654435761, F.lit(keys)).alias("key")))
    keyed.key_by("key").aggregate("counts", n=headgate.count()).sink("out", headgate.sinks.discard())
    return job


class SharedSession(SparkEngine):
    """Leaves the Spark session to the next round."""

    def stop(self) -> None:
        self._session = None
        super().stop()


def live(
    base: Path,
    settings: Settings,
    job: headgate.Job,
    engine_of: Callable[[EngineSetup, Callable[[], None]], Measured],
    *,
    store: ObjectStore | None = None,
    ledger_class: type[Ledger] = Ledger,
) -> Measured:
    """A first generation below `base`, until its engine says that it is enough; the engine, with what it measured."""
    switch_threads_often()
    store = store or open_store(str(base / "root"))
    store.make()
    now = time.time_ns() // 1_000_000
    deployed = Deployed(
        job="", job_sha256="", directory=str(base), settings=settings.given, plan={}, by="bench", at_ms=now
    )
    decision_log(store, STREAM).append(None, deployed)
    started = GenerationStarted(
        generation=Generation(1),
        decision=StartFresh("bench"),
        first_checkpoint=CheckpointId(1),
        deployed=1,
        by="bench",
        host="",
        at_ms=now,
        launch="bench",
        log="",
    )
    slots = slot_log(store, STREAM)
    slots.append(None, started)
    plan = graph_plan(job)
    lives: list[Lives] = []
    setup = EngineSetup(
        stream=STREAM, generation=Generation(1), plan=plan, settings=settings, directory=base / "engine"
    )
    engine = engine_of(setup, lambda: lives[0].ask_to_stop("enough"))
    heart = Heart(store, STREAM, Generation(1))
    heart.start()
    heart.become(StreamState.RESTORING)
    lives.append(
        Lives(
            LifeSetup(
                store=store,
                stream=STREAM,
                started=started,
                catalogue=read_catalogue(store, STREAM),
                slots=slots,
                settings=settings,
                plan=plan,
                work=base / "work",
                engine=engine,
                points=KillPoints(),
                ledger_class=ledger_class,
            ),
            heart,
        )
    )
    try:
        lives[0].run()
    finally:
        heart.close()
    return engine
