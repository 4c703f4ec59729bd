"""Random lives of a stream with a sink that takes back what it is told to, against a model that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.records import SnapshotCompleted
from headgate_contract.restore import (
    Fresh,
    Named,
    Newest,
    Refuse,
    RestoreFacts,
    RestoreFrom,
    Rollback,
    StartFresh,
    Wanted,
    decide_restore,
)
from tests.contract.lives import OUT, Lives, snapshot, started
from tests.contract.profiles import MACHINE
from tests.contract.same_answers import check_same_answers


@dataclass
class Life:
    """What the model remembers of one generation."""

    base: int | None
    begun: bool
    """Whether its driver came to take back what the restore went back behind."""
    own: list[int] = field(default_factory=list)
    stopped: bool = False


class CatalogueMachine(RuleBasedStateMachine):
    """Starts, completions, retirements, rollbacks, crashes, stops, retention."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = Lives()
        self.model: list[Life] = []
        self.retired: set[int] = set()
        self.published: set[int] = set()
        """What the sink shows."""
        self.tried = 0
        """Ids that were used up, by failed attempts too."""

    # ---- the model's own answers

    def lineage(self, id: int | None) -> set[int]:
        if id is None:
            return set()
        life = next(life for life in self.model if id in life.own)
        return {own for own in life.own if own <= id} | self.lineage(life.base)

    @property
    def completed(self) -> set[int]:
        return {id for life in self.model for id in life.own}

    @property
    def retained(self) -> list[int]:
        return sorted(self.completed - self.retired)

    @property
    def head(self) -> int | None:
        """What the stream stands on now."""
        newest = self.model[-1]
        return max(newest.own) if newest.own else newest.base

    # ---- starts

    def decide(self, wanted: Wanted, *, fall_back: bool = False, damaged: set[int] | None = None) -> object:
        return decide_restore(
            RestoreFacts(
                catalogue=self.lives.catalogue,
                wanted=wanted,
                damaged={ref: "damaged" for ref in self.lives.catalogue.completed if ref.id in (damaged or set())},
                sinks={OUT: Rollback.RETRACT},
                fall_back=fall_back,
            )
        )

    def start(self, decision: RestoreFrom | StartFresh, begins: bool) -> None:
        """Launch; the driver may die before it has begun its sinks."""
        catalogue = self.lives.catalogue
        self.lives.append(started(len(self.model) + 1, decision, first_checkpoint=catalogue.next_checkpoint))
        base = int(decision.snapshot.id) if isinstance(decision, RestoreFrom) else None
        self.model.append(Life(base, begins))
        if begins:
            self.begin(decision)

    def begin(self, decision: RestoreFrom | StartFresh) -> None:
        """The sink takes back what the decision names, and shows the history that is restored (again)."""
        for rollback in decision.rollbacks:
            self.published -= {int(group) for group in rollback.ids}
        base = decision.snapshot if isinstance(decision, RestoreFrom) else None
        self.published |= {int(id) for id in self.lives.catalogue.lineage(base)} & self.completed
        assert self.published == self.lineage(self.model[-1].base), "the sink shows another history than the state's"

    @rule(begins=st.booleans(), fall_back=st.booleans())
    def start_newest(self, begins: bool, fall_back: bool) -> None:
        decision = self.decide(Newest(), fall_back=fall_back)
        if not self.model or self.head is None:
            assert isinstance(decision, StartFresh), decision
        elif self.head not in self.retired:
            assert isinstance(decision, RestoreFrom), decision
            assert decision.snapshot.id == self.head
        else:
            older = [id for id in self.lineage(self.head) if id not in self.retired]
            if fall_back and older:
                assert isinstance(decision, RestoreFrom), decision
                assert decision.snapshot.id == max(older)
            else:
                assert isinstance(decision, Refuse), decision
                return
        self.start(decision, begins)

    @precondition(lambda self: self.model)
    @rule(begins=st.booleans())
    def start_fresh(self, begins: bool) -> None:
        decision = self.decide(Fresh())
        assert isinstance(decision, StartFresh)
        self.start(decision, begins)

    @precondition(lambda self: self.retained)
    @rule(begins=st.booleans(), data=st.data())
    def restore_named(self, begins: bool, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.retained))
        decision = self.decide(Named(CheckpointId(id)))
        assert isinstance(decision, RestoreFrom)
        assert decision.snapshot.id == id
        self.start(decision, begins)

    @precondition(lambda self: self.retained)
    @rule(fall_back=st.booleans(), data=st.data())
    def ask_with_damage(self, fall_back: bool, data: st.DataObject) -> None:
        """Whatever is damaged, a start takes something good of its own history, or refuses and names what is good."""
        damaged = data.draw(st.sets(st.sampled_from(self.retained), min_size=1))
        decision = self.decide(Newest(), fall_back=fall_back, damaged=damaged)
        usable = self.lineage(self.head) - self.retired - damaged
        match decision:
            case RestoreFrom(ref):
                assert ref.id == max(usable)
                assert fall_back or ref.id == self.head
            case StartFresh():
                assert self.head is None
            case Refuse():
                assert not (fall_back and usable)
                assert {int(ref.id) for ref in decision.alternatives} == set(self.retained) - damaged

    # ---- a driver at work

    def can_work(self) -> bool:
        return bool(self.model) and not self.model[-1].stopped

    @precondition(can_work)
    @rule(skip=st.integers(0, 2), keep=st.integers(1, 3), name=st.booleans(), publishes=st.booleans())
    def complete(self, skip: int, keep: int, name: bool, publishes: bool) -> None:
        """A driver begins its sinks, completes, retires what is subsumed, and commits, unless it dies before that."""
        self.begin_late()
        refs = {ref.id: ref for ref in self.lives.catalogue.snapshots}
        subsumed = [refs[CheckpointId(id)] for id in self.retained if not refs[CheckpointId(id)].name][:-keep]
        ref = self.lives.checkpoint(retires=subsumed, skip=skip, name=f"sp-{len(self.lives.slots)}" if name else None)
        self.model[-1].own.append(int(ref.id))
        self.retired |= {int(old.id) for old in subsumed}
        if publishes:
            self.published |= self.lineage(int(ref.id))

    @precondition(can_work)
    @rule()
    def complete_out_of_order(self) -> None:
        """A savepoint that took its time completes after a checkpoint whose barrier came later."""
        self.begin_late()
        first = int(self.lives.catalogue.next_checkpoint)
        for id, name in ((first + 1, None), (first, f"slow-{first}")):
            ref = snapshot(id, len(self.model), name)
            self.lives.append(SnapshotCompleted(generation=Generation(len(self.model)), snapshot=ref))
            self.model[-1].own.append(id)
            self.published |= self.lineage(id)

    def begin_late(self) -> None:
        newest = self.lives.catalogue.newest_generation
        assert newest is not None
        if not self.model[-1].begun:
            self.begin(newest.decision)
            self.model[-1].begun = True

    @precondition(can_work)
    @rule()
    def stop(self) -> None:
        self.lives.stop()
        self.model[-1].stopped = True

    @precondition(lambda self: self.model and not self.model[-1].stopped)
    @rule()
    def restart(self) -> None:
        """Inside the driver: what it stands on stays the same."""
        self.lives.restart()

    # ---- the control plane

    @precondition(lambda self: self.retained)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.retained))
        ref = self.lives.catalogue.find(CheckpointId(id))
        assert ref is not None
        self.lives.retire(ref)
        self.retired.add(id)

    @precondition(lambda self: self.model)
    @rule()
    def fold(self) -> None:
        """Old entries are folded into a summary, and read from it from now on."""
        self.lives.fold()

    @precondition(lambda self: self.model)
    @rule()
    def want_a_stop(self) -> None:
        self.lives.want_stop(Generation(len(self.model)))

    @rule()
    def deploy(self) -> None:
        self.lives.deploy(f"job-{len(self.lives.every_decision)}.py")

    # ---- what must hold at every moment

    @invariant()
    def a_summary_answers_as_all_entries_do(self) -> None:
        check_same_answers(self.lives.unfolded, self.lives.catalogue)

    @invariant()
    def the_catalogue_says_what_happened(self) -> None:
        catalogue = self.lives.catalogue
        assert [int(ref.id) for ref in catalogue.snapshots] == self.retained[::-1]
        assert len({ref.id for ref in catalogue.completed}) == len(catalogue.completed)
        assert all(catalogue.next_checkpoint > id for id in self.completed)
        assert (catalogue.stopped is not None) == bool(self.model and self.model[-1].stopped)
        for ref in catalogue.snapshots:
            assert catalogue.lineage(ref) >= self.lineage(int(ref.id))
            assert catalogue.lineage(ref) & self.completed == self.lineage(int(ref.id))

    @invariant()
    def nothing_that_a_sink_shows_is_forgotten(self) -> None:
        catalogue = self.lives.catalogue
        assert self.published <= {int(id) for id in catalogue.exposed}
        for ref in [None, *catalogue.snapshots]:
            behind = self.published - self.lineage(None if ref is None else int(ref.id))
            assert behind <= {int(id) for id in catalogue.abandoned_by(ref)}

    @invariant()
    def the_base_is_that_of_the_last_start(self) -> None:
        for number, life in enumerate(self.model, start=1):
            base = self.lives.catalogue.base_of(Generation(number))
            expected = None if life.base is None or life.base in self.retired else life.base
            assert (None if base is None else int(base.id)) == expected

    @invariant()
    def the_history_is_the_lineage_of_the_head(self) -> None:
        history = [int(ref.id) for ref in self.lives.catalogue.history]
        assert history == sorted(history, reverse=True)
        wanted = self.lineage(self.head) if self.model else set()
        assert set(history) <= wanted
        assert {id for id in wanted if id not in self.retired} <= set(history)


TestRandomLives = CatalogueMachine.TestCase
TestRandomLives.settings = MACHINE
