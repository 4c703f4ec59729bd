"""A gate driven by a line of script, and what it did as such a line.

Into channel `a`: `a7` a micro-batch, `a~7` a watermark (`a~-` idle), `a.` its end; barriers of checkpoint 7: `a|7` is
aligned for ever, `a!7` overtakes at once, `a?7` overtakes 100 ms after its start (`a?7@50` started at 50).
For the task: `>` one element, begun and done, `(` begun only, `)` done, `>>` everything that it can get.
`+30` 30 ms pass. `x7` checkpoint 7 is aborted.

What it did: `a7` processed, `~7` the task's watermark, `[7]` state taken, `{7 a1 b2}` channel state with what was in
flight, `x7` given up, `.` finished.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.gate.channel import Channel
from headgate.gate.effects import ChannelState, Effect, Finished, GaveUp, Process, TakeState
from headgate.gate.elements import Barrier, Batch, ChannelId, Element, EndOfInput, Watermark
from headgate.gate.gate import Gate
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId, VertexUid

_INTO = re.compile(r"(?P<channel>[a-z])(?P<what>\d+|~-?\d*|\.|(?P<kind>[|!?])(?P<id>\d+)(@(?P<at>\d+))?)$")
TIMEOUT_MS = 100
_AFTER = {"|": None, "!": 0, "?": TIMEOUT_MS}


def channel(name: str) -> ChannelId:
    return ChannelId(VertexUid(name), VertexUid("task"))


class Script:
    def __init__(
        self, channels: str = "ab", *, exactly_once: bool = True, watermarks: Watermarks | None = None
    ) -> None:
        ids = [channel(name) for name in channels]
        known = {} if watermarks is None else {"watermarks": watermarks}
        self.gate = Gate({id: Channel(id) for id in ids}, exactly_once, **known)
        self.now = 0
        self.did: list[str] = []
        self.effects: list[Effect] = []

    def __call__(self, script: str) -> str:
        """Play it; what the gate has done since the last call."""
        for token in script.split():
            self._play(token)
        did, self.did = self.did, []
        return " ".join(did)

    @property
    def gave_up(self) -> list[tuple[int, str]]:
        return [(int(each.checkpoint), each.reason.name) for each in self.effects if isinstance(each, GaveUp)]

    def inject(self, name: str, batches: Iterable[str]) -> None:
        self.gate.inject(channel(name), [Batch(batch) for batch in batches])

    def _play(self, token: str) -> None:
        if token == "(":
            self._note(self.gate.take(self.now))
        elif token == ">":
            self._one()
        elif token == ")":
            self.gate.done()
        elif token == ">>":
            while self._one():
                pass
        elif token[0] == "+":
            self.now += int(token[1:])
            self._note(self.gate.tick(self.now))
        elif token[0] == "x":
            self.gate.abort(CheckpointId(int(token[1:])))
        else:
            into = _INTO.match(token)
            assert into is not None, token
            self._note(self.gate.put(channel(into["channel"]), self._element(into, token), self.now))

    def _one(self) -> bool:
        """One element, or what else there is to do; False if there is nothing."""
        effects = self.gate.take(self.now)
        self._note(effects)
        if effects and isinstance(effects[-1], Process):
            self.gate.done()
        return bool(effects)

    def _element(self, into: re.Match[str], token: str) -> Element:
        if into["kind"]:
            return Barrier(CheckpointId(int(into["id"])), int(into["at"] or self.now), _AFTER[into["kind"]])
        if into["what"] == ".":
            return EndOfInput()
        if into["what"].startswith("~"):
            return Watermark(None if into["what"] == "~-" else int(into["what"][1:]))
        return Batch(token)

    def _note(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            self.did.append(told(effect))
        assert not any(isinstance(effect, Process) for effect in effects[:-1]), "a Process comes last"


def told(effect: Effect) -> str:
    match effect:
        case Process(element=element):
            return _shown(element)
        case TakeState(barrier=barrier):
            return f"[{barrier.checkpoint}]"
        case ChannelState(checkpoint=checkpoint, in_flight=in_flight):
            shown = [_shown(element) for _, elements in sorted(in_flight.items()) for element in elements]
            return "{" + " ".join([str(checkpoint), *shown]) + "}"
        case GaveUp(checkpoint=checkpoint):
            return f"x{checkpoint}"
        case Finished():
            return "."


def _shown(element: Element) -> str:
    if isinstance(element, Watermark):
        return f"~{'-' if element.ms is None else element.ms}"
    assert isinstance(element, Batch)
    return str(element.content)
