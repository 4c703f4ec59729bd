"""Foresees, while a stream runs, what would refuse its restore once it was stopped for it.

Its checkpoints come and go while one looks. What its stop will take fits if what it has now does; what is only in the
one that the stop takes is decided then.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import CorruptObject, ObjectMissing, RestoreRefused, SnapshotUnknown
from headgate_contract.ids import CheckpointId, StreamName
from headgate_contract.records import Deployed
from headgate_contract.restore import Newest, Refuse
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.explain import Inspector, Question, explain, misfits_of
from headgate_control.outcomes import Explanation

_LOOKS = 5
"""How often what was looked at may be subsumed meanwhile; then only the stop can tell."""


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """Looks at the running streams of one root."""

    store: ObjectStore
    catalogues: Catalogues

    def check(
        self, stream: StreamName, number: int, deployed: Deployed, question: Question, *, savepoint: bool
    ) -> CheckpointId | None:
        """What the stop must keep for the restore. Raises SnapshotUnknown or RestoreRefused: nothing was stopped.

        With a `savepoint` at its end nothing that lies on storage now is needed any more.
        """
        if isinstance(question.wanted, Newest):
            self._check_newest(stream, deployed, question, savepoint=savepoint)
            return None
        found = self.explain(stream, number, deployed, question)
        decision = found.decision
        if not isinstance(decision, Refuse):
            return found.keeps
        kind = RestoreRefused if decision.rejected or decision.rollbacks else SnapshotUnknown
        raise kind(
            f"stream {stream} is not stopped for it, and runs on: {decision.reason}",
            hint=f"`headgate snapshots {stream}` lists what there is; those that newer ones subsume come and go",
        )

    def explain(self, stream: StreamName, number: int, deployed: Deployed, question: Question) -> Explanation:
        """What would be decided after a stop, by snapshots that stay for as long as one looks at them."""
        for _ in range(_LOOKS):
            catalogue = self.catalogues.read(stream)
            found = explain(self.store, catalogue, number, deployed, question, live=True)
            if not _subsumed(found, catalogue, self.catalogues.read(stream)):
                break
        return found

    def _check_newest(self, stream: StreamName, deployed: Deployed, question: Question, *, savepoint: bool) -> None:
        why, subsumed = None, True
        for _ in range(_LOOKS):
            catalogue = self.catalogues.read(stream)
            if not catalogue.history:
                return
            head = catalogue.history[0]
            inspector = Inspector(self.store, misfits_of(catalogue, deployed, question, committed=None))
            why = _misfit(inspector, catalogue, savepoint=savepoint)
            subsumed = not self.catalogues.read(stream).is_retained(head)
            if why is None or not subsumed:
                break
        if why is not None and not subsumed:
            hint = "" if savepoint else f"; with a savepoint at its end (`headgate restore {stream}`) it is not needed"
            raise RestoreRefused(
                f"stream {stream} is not stopped for it, and runs on: {head} cannot be restored: {why}",
                hint=f"`headgate explain {stream}` tells more{hint}",
            )


def _misfit(inspector: Inspector, catalogue: Catalogue, *, savepoint: bool) -> str | None:
    head = catalogue.history[0]
    if not savepoint:  # the next checkpoint goes on using the files of this one
        inspector.inspect(catalogue, head)
        return inspector.damaged.get(head)
    try:
        return inspector.misfit(head)
    except (CorruptObject, ObjectMissing):
        return None


def _subsumed(found: Explanation, before: Catalogue, now: Catalogue) -> bool:
    """Was something of what it found damaged only subsumed while it looked?"""
    bad = {where for where, said in found.checked.items() if not said.startswith("good")}
    return any(ref.where in bad and not now.is_retained(ref) for ref in before.snapshots)
