"""Tidies the local folders of a stream's earlier generations on this host: working state goes, recent logs stay."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import StorageError
from headgate_contract.heartbeats import HEARTBEATS_KEPT, read_heartbeat
from headgate_contract.process import this_host
from headgate_contract.records import GenerationStarted
from headgate_contract.store import ObjectStore
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of

LOG = logging.getLogger(__name__)
LOGS_KEPT = 5


def tidy(store: ObjectStore, before: Catalogue) -> None:
    """Remove the working state of the generations `before` a launch, all of it where logs are old. Never fails one."""
    earlier = before.generations[-HEARTBEATS_KEPT:]
    for age, start in enumerate(reversed(earlier), start=1):
        folder = Path(start.log).parent
        if start.host != this_host() or not _is_own(folder, start) or not folder.is_dir():
            continue
        try:
            seen = read_heartbeat(store, before.stream, start.generation)
            beat = seen.heartbeat if seen is not None else None
            if sign_of(beat.process if beat else None) is not ProcessSign.ALIVE:
                _remove(folder, Path(start.log).name, keep_logs=age <= LOGS_KEPT)
        except (OSError, StorageError) as error:
            LOG.warning("cannot tidy %s: %s", folder, error)


def _is_own(folder: Path, start: GenerationStarted) -> bool:
    """Only a folder that this very launch was given is touched."""
    return folder.name == f"g{start.generation}-{start.launch[:8]}"


def _remove(folder: Path, log: str, *, keep_logs: bool) -> None:
    if not keep_logs:
        shutil.rmtree(folder)
        return
    for entry in folder.iterdir():
        if entry.name.startswith(log):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
