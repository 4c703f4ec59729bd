"""Switches that reverse numbered behaviours of gates and channels: each must make a test of its number fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.coordinator import requests as deciding
from headgate.driver import restoring, snapshots
from headgate.gate import channel, gate, states
from headgate.gate.elements import Barrier
from headgate.gate.states import Aligning, Counting, Next, Overtaking
from headgate_contract.errors import StorageError
from tests.runtime.driver import waiting
from tests.spec.reversing import Patch, reverses


@reverses(16, "a savepoint is forced also where barriers overtake")
def _(patch: Patch) -> None:
    look = deciding.CheckpointRequestDecider.look

    def forcing(self: deciding.CheckpointRequestDecider, load: deciding.Load, now_ms: int) -> Any:
        forced = self.waiting[0].is_savepoint if self.waiting else False
        return look(self, replace(load, running=0) if forced else load, now_ms)

    patch.setattr(deciding.CheckpointRequestDecider, "look", forcing)


@reverses(18, "who has finished is waited for, and never acknowledges")
def _(patch: Patch) -> None:
    patch.setattr(gate.Gate, "pass_by", lambda self, barrier: [])


@reverses(120, "an input that has brought its barrier goes on")
def _(patch: Patch) -> None:
    patch.setattr(Aligning, "holds_back", lambda self, channel: False)


@reverses(122, "an abort leaves inputs held back")
def _(patch: Patch) -> None:
    patch.setattr(Aligning, "aborted", lambda self, checkpoint: self)


@reverses(123, "an abort of any checkpoint ends the one that is under way")
def _(patch: Patch) -> None:
    patch.setattr(Aligning, "aborted", lambda self, checkpoint: states.Flowing())


@reverses(124, "the end of an input is no barrier")
def _(patch: Patch) -> None:
    for state in (Aligning, Counting):
        patch.setattr(state, "ended", lambda self, channel, view: Next(self))


@reverses(125, "an input that has ended is waited for all the same")
def _(patch: Patch) -> None:
    patch.setattr(Aligning, "ended", lambda self, channel, view: Next(self))


@reverses(126, "at least once, an input that has brought its barrier is held back")
def _(patch: Patch) -> None:
    patch.setattr(Counting, "holds_back", lambda self, channel: any(channel in here for here in self.here.values()))


@reverses(127, "barriers of an aborted checkpoint begin it anew")
def _(patch: Patch) -> None:
    patch.setattr(gate, "MOST_REMEMBERED", 0)
    abort = gate.Gate.abort

    def forgetful(self: gate.Gate, checkpoint: Any) -> None:
        abort(self, checkpoint)
        self._aborted.clear()

    patch.setattr(gate.Gate, "abort", forgetful)


@reverses(128, "what a barrier overtakes is forgotten")
def _(patch: Patch) -> None:
    patch.setattr(channel.Channel, "overtaken_by", lambda self, checkpoint: ())


@reverses(129, "an aborted checkpoint goes on being collected")
def _(patch: Patch) -> None:
    patch.setattr(Overtaking, "aborted", lambda self, checkpoint: self)


@reverses(130, "the end of an input is a barrier to a checkpoint that overtakes")
def _(patch: Patch) -> None:
    patch.setattr(Overtaking, "gives_up", lambda self, reason: replace(self, here=frozenset("all")).looked(_nobody()))


def _nobody() -> states.View:
    return states.View(open=frozenset(), watermarks=None)  # type: ignore[arg-type]


@reverses(131, "a barrier with a timeout overtakes at once")
def _(patch: Patch) -> None:
    patch.setattr(Barrier, "may_overtake", lambda self, now_ms: self.overtakes_after_ms is not None)


@reverses(132, "a barrier with a timeout never overtakes")
def _(patch: Patch) -> None:
    patch.setattr(Barrier, "may_overtake", lambda self, now_ms: self.overtakes_after_ms == 0)


@reverses(134, "a savepoint's barrier overtakes")
def _(patch: Patch) -> None:
    _savepoints_overtake(patch)


@reverses(135, "barriers of older checkpoints count")
def _(patch: Patch) -> None:
    patch.setattr(gate.Gate, "_is_late", lambda self, barrier: False)


@reverses(136, "a newer checkpoint waits for an older one whose barrier is missing")
def _(patch: Patch) -> None:
    waiting = gate.Gate._waiting_barriers
    patch.setattr(
        gate.Gate,
        "_waiting_barriers",
        lambda self: iter(()) if isinstance(self.state, Overtaking) else waiting(self),
    )


@reverses(139, "once channel state could not be written, none is any more")
def _(patch: Patch) -> None:
    upload = snapshots.SnapshotTaker._upload
    patch.setattr(waiting, "PATIENCE_S", 5.0)  # the test waits in vain

    def sulking(self: snapshots.SnapshotTaker, action: Any, name: str, *args: Any) -> Any:
        if ".pair.arrow" in name and getattr(self, "has_failed", False):
            raise StorageError("it could not be written before")
        try:
            return upload(self, action, name, *args)
        except StorageError:
            patch.setattr(self, "has_failed", True, raising=False)
            raise

    patch.setattr(snapshots.SnapshotTaker, "_upload", sulking)


@reverses(140, "what was in flight comes back though somebody has said that it is to be left")
def _(patch: Patch) -> None:
    patch.setattr(restoring.Restorer, "_without_channel_state", lambda restorer, metadata: metadata)


@reverses(143, "a savepoint keeps what is in flight")
def _(patch: Patch) -> None:
    _savepoints_overtake(patch)


def _savepoints_overtake(patch: Patch) -> None:
    patch.setattr(Barrier, "overtakes_ms", property(lambda self: self.started_ms + (self.overtakes_after_ms or 0)))
