"""What lies beside a stream's logs and tells that there was more of them: an end that is gone leaves no gap.

History names the newest slot that its writer knew of, the copy of the newest deployment its decision; snapshots and
heartbeats are written by started generations only. All of it is written behind the entry that it tells of.
"""

from __future__ import annotations

from headgate_contract import wire
from headgate_contract.errors import CorruptObject, LogDamaged, ObjectMissing
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.paths import HEARTBEATS, StreamPaths, heartbeat_of, numbered, slot_told_by
from headgate_contract.records import StreamCopy
from headgate_contract.store import ObjectStore

_FAR = 100_000
"""History does not tell of a slot so far behind all others: it is a file that somebody has put there."""


def highest_slot_told(store: ObjectStore, stream: StreamName, above: int) -> int:
    """The highest slot above that one of which history tells; that one, if it tells of none."""
    found = store.list_after(StreamPaths(stream).history, f"{above + 1:010d}")
    told = (slot_told_by(info.path) or 0 for info in found)
    return max([above, *(slot for slot in told if slot <= above + _FAR)])


def read_copy(store: ObjectStore, stream: StreamName) -> StreamCopy | None:
    """The copy of the newest deployment, if it is there and can be read."""
    path = StreamPaths(stream).readable
    try:
        found: StreamCopy = wire.decode("stream", store.read(path), StreamCopy, path, path)
    except (ObjectMissing, CorruptObject):
        return None
    return found


def missing_end(
    store: ObjectStore, stream: StreamName, slot: SlotNumber | None, decision: SlotNumber | None
) -> LogDamaged | None:
    """What tells that entries behind `slot` and `decision`, the newest ones that were read, are gone.

    Entries that were written since are not: whoever gets an answer reads the logs once more, and asks again.
    """
    told = highest_slot_told(store, stream, slot or 0)
    if told > (slot or 0):
        return _damaged(stream, "slot", slot, f"its history tells of slot {told}")
    started = _was_started(store, stream) if slot is None else None
    if started is not None:
        return _damaged(stream, "slot", slot, started)
    copy = read_copy(store, stream)
    if copy is not None and copy.number > (decision or 0):
        return _damaged(stream, "decision", decision, f"{StreamPaths(stream).readable} tells of decision {copy.number}")
    return None


def _was_started(store: ObjectStore, stream: StreamName) -> str | None:
    """What only a generation that was started has written."""
    paths = StreamPaths(stream)
    for folder in (paths.checkpoints, paths.savepoints, paths.summaries, paths.answers):
        if store.list(folder):
            return f"{folder} is not empty"
    beats = [info for info in store.list_after(HEARTBEATS, f"{stream}.g") if _is_of(info.path, stream)]
    deployed = store.stat(numbered(paths.decisions, SlotNumber(1))) if beats else None
    # An older one is of a stream of this name of which somebody has removed the whole folder.
    later = [info.path for info in beats if deployed is not None and info.modified > deployed.modified]
    return f"{later[-1]} is there" if later else None


def _is_of(path: str, stream: StreamName) -> bool:
    whose = heartbeat_of(path)
    return whose is not None and whose[0] == stream


def _damaged(stream: StreamName, noun: str, newest: SlotNumber | None, told: str) -> LogDamaged:
    paths = StreamPaths(stream)
    folder = paths.slots if noun == "slot" else paths.decisions
    end = f"it ends with {noun} {newest}" if newest is not None else f"{folder} has no entry"
    return LogDamaged(
        f"the log of stream {stream} is damaged: {end}, and {told}",
        hint=f"`headgate repair {stream}` tells a way out; or bring back what was in {folder}",
    )
