"""Requests and answers: one id, one answer, whoever repeats it; and nothing strange in the mailbox blocks the rest."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate_contract import wire
from headgate_contract.errors import CorruptObject
from headgate_contract.ids import RequestId
from headgate_contract.mailbox import Answer, CorruptRequest, Mailbox, Outcome, Request, RequestKind
from headgate_contract.paths import StreamPaths
from headgate_contract.store import ObjectStore, open_store
from headgate_contract.store_memory import MemoryStore
from tests.contract.lives import STREAM
from tests.contract.profiles import MACHINE
from tests.contract.store_suite import race, unique
from tests.contract.stored_values import resealed

PATHS = StreamPaths(STREAM)
SAVE_1, SAVE_9 = PATHS.answer(RequestId("save-1")), PATHS.request(RequestId("save-9"))


def request(id: str = "save-1", by: str = "anna", kind: RequestKind = RequestKind.SAVEPOINT) -> Request:
    return Request(id=RequestId(id), kind=kind, generation=1, args={"name": "v1"}, deadline_ms=60_000, by=by, at_ms=1)


def answer(id: str = "save-1", outcome: Outcome = Outcome.DONE, why: str = "", *, late: bool = False) -> Answer:
    return Answer(id=RequestId(id), outcome=outcome, result={"snapshot": 7}, why=why, generation=1, late=late, at_ms=2)


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{unique()}")


@pytest.fixture
def mailbox(store: ObjectStore) -> Mailbox:
    return Mailbox(store, STREAM)


class TestAsking:
    def test_a_request_is_open_until_it_is_answered(self, mailbox: Mailbox) -> None:
        asked = mailbox.ask(request())
        assert mailbox.open_requests() == [asked]
        assert mailbox.answer(asked.id) is None
        assert mailbox.reply(answer())
        assert mailbox.open_requests() == []
        assert mailbox.answer(asked.id) == answer()

    def test_a_repeat_finds_the_first_request_and_its_answer(self, mailbox: Mailbox) -> None:
        first = mailbox.ask(request(by="anna"))
        assert mailbox.ask(request(by="bert")) == first
        mailbox.reply(answer())
        assert mailbox.ask(request(by="carl")) == first
        assert mailbox.open_requests() == []

    def test_after_a_terminal_failure_a_repeat_takes_the_next_ordinal(self, mailbox: Mailbox) -> None:
        first = mailbox.ask(request())
        for ordinal in (2, 3):
            mailbox.reply(answer(mailbox.ask(request()).id, Outcome.FAILED, "disk full"))
            again = mailbox.ask(request())
            assert again.id == f"save-1~{ordinal}"
            assert mailbox.open_requests() == [again]
        assert mailbox.ask(first).id == "save-1~3"

    def test_the_very_request_that_failed_is_not_taken_for_a_new_one(self, mailbox: Mailbox) -> None:
        asked = mailbox.ask(request())
        mailbox.reply(answer(outcome=Outcome.FAILED))
        assert mailbox.ask(asked).id == "save-1~2"

    def test_of_racing_callers_all_get_the_one_request(self, mailbox: Mailbox) -> None:
        asked = race(lambda racer: mailbox.ask(request(by=f"caller {racer}")), 20)
        assert len({each.by for each in asked}) == 1
        assert mailbox.open_requests() == asked[:1]

    def test_a_mailbox_is_one_streams_own(self, store: ObjectStore, mailbox: Mailbox) -> None:
        mailbox.ask(request())
        assert Mailbox(store, type(STREAM)("orders2")).open_requests() == []


class TestAnswering:
    def test_the_first_answer_stands(self, mailbox: Mailbox) -> None:
        mailbox.ask(request())
        assert mailbox.reply(answer())
        assert not mailbox.reply(answer(outcome=Outcome.FAILED, why="fenced"))
        assert mailbox.answer(RequestId("save-1")) == answer()

    def test_an_answer_that_is_repeated_after_a_lost_one_is_the_same(self, mailbox: Mailbox) -> None:
        mailbox.ask(request())
        assert mailbox.reply(answer())
        assert mailbox.reply(answer())

    def test_a_late_answer_is_recorded_as_such(self, mailbox: Mailbox) -> None:
        mailbox.ask(request())
        mailbox.reply(answer(late=True))
        found = mailbox.answer(RequestId("save-1"))
        assert found is not None
        assert found.late


def misnamed(name: str, id: str) -> bytes:
    """The request `id`, written to be called `name`."""
    return wire.encode("request", request(id), f"{PATHS.requests}/{name}.json")


class TestStrangers:
    @pytest.mark.parametrize(
        ("name", "data", "says"),
        [
            ("torn.json", b'{"body":', "torn.json is not a request file"),
            ("empty.json", b"", "empty.json is not a request file"),
            ("deep.json", b"[" * 100_000, "deep.json is not a request file"),
            ("answer.json", wire.encode("answer", answer()), "is an answer file, not a request file"),
            (
                "other.json",
                misnamed("other", "save-9"),
                "other.json holds the request save-9",
            ),
            (
                "sub/save-9.json",
                wire.encode("request", request("save-9"), PATHS.request(RequestId("save-9"))),
                "is misplaced",
            ),
            ("readme.txt", b"hello", "readme.txt is not a request file"),
            (
                "kind.json",
                resealed(
                    wire.encode("request", request("kind"), f"{PATHS.requests}/kind.json"), b"savepoint", b"teleport"
                ),
                "'teleport', allowed",
            ),
            ("new.json", resealed(wire.encode("request", request("new")), b'"version":', b'"version":7'), "version 7"),
        ],
    )
    def test_a_corrupt_request_is_told_and_blocks_no_other(
        self, store: ObjectStore, mailbox: Mailbox, name: str, data: bytes, says: str
    ) -> None:
        store.create(f"{PATHS.requests}/{name}", data)
        asked = mailbox.ask(request())
        corrupt, good = sorted(mailbox.open_requests(), key=lambda found: isinstance(found, Request))
        assert good == asked
        assert isinstance(corrupt, CorruptRequest)
        assert says in corrupt.why
        assert mailbox.open_requests(frozenset({corrupt.name})) == [asked]
        mailbox.reply(answer())
        assert mailbox.open_requests(frozenset({corrupt.name})) == []

    def test_a_corrupt_answer_is_named(self, store: ObjectStore, mailbox: Mailbox) -> None:
        mailbox.ask(request())
        store.create(PATHS.answer(RequestId("save-1")), b"torn")
        with pytest.raises(CorruptObject, match=r"answers/save-1\.json is not an answer file"):
            mailbox.answer(RequestId("save-1"))

    def test_an_answer_to_something_else_is_named(self, store: ObjectStore, mailbox: Mailbox) -> None:
        store.create(
            PATHS.answer(RequestId("save-1")),
            wire.encode("answer", answer("save-2"), PATHS.answer(RequestId("save-1"))),
        )
        with pytest.raises(CorruptObject, match="holds the answer to save-2"):
            mailbox.answer(RequestId("save-1"))

    def test_a_request_that_vanishes_while_it_is_read_is_left_out(self) -> None:
        class Vanishing(MemoryStore):
            def read(self, path: str) -> bytes:
                if "gone" in path:
                    self.delete(path)
                return super().read(path)

        mailbox = Mailbox(Vanishing(f"memory://{unique()}"), STREAM)
        mailbox.ask(request("gone-1"))
        asked = mailbox.ask(request())
        assert mailbox.open_requests() == [asked]


IDS = st.sampled_from(["a", "b", "save.1"])


class MailboxMachine(RuleBasedStateMachine):
    """Callers ask and repeat, drivers answer and answer again, strangers leave rubbish."""

    def __init__(self) -> None:
        super().__init__()
        self.store = open_store(f"memory://{unique()}")
        self.mailbox = Mailbox(self.store, STREAM)
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, Answer] = {}
        self.rubbish: set[str] = set()

    @rule(id=IDS, by=st.sampled_from(["anna", "bert"]), kind=st.sampled_from(RequestKind))
    def ask(self, id: str, by: str, kind: RequestKind) -> None:
        asked = request(id, by, kind)
        found = self.mailbox.ask(asked)
        tries = [id, *(f"{id}~{ordinal}" for ordinal in range(2, 40))]
        expected = next(
            each for each in tries if each not in self.answers or self.answers[each].outcome is Outcome.DONE
        )
        assert found.id == expected
        assert found == self.requests.setdefault(expected, replace(asked, id=RequestId(expected)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), late=st.booleans(), why=st.sampled_from(["", "fenced"]))
    def reply(self, data: st.DataObject, outcome: Outcome, late: bool, why: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.requests)))
        given = answer(id, outcome, why, late=late)
        stands = self.answers.setdefault(id, given)
        assert self.mailbox.reply(given) == (stands == given)

    @rule(name=st.sampled_from(["x", "a~~2", "..", "sub/a"]), data=st.binary(max_size=8))
    def leave_rubbish(self, name: str, data: bytes) -> None:
        if ".." not in name:
            self.store.replace(f"{PATHS.requests}/{name}.json", data)
            self.rubbish.add(name)

    @invariant()
    def every_request_without_an_answer_is_open_and_no_other(self) -> None:
        found = self.mailbox.open_requests()
        good = {each.id: each for each in found if isinstance(each, Request)}
        assert good == {id: each for id, each in self.requests.items() if id not in self.answers}
        assert {each.name for each in found if isinstance(each, CorruptRequest)} == self.rubbish

    @invariant()
    def the_first_answer_stands(self) -> None:
        for id in self.requests:
            assert self.mailbox.answer(RequestId(id)) == self.answers.get(id)


TestMailboxHistories = MailboxMachine.TestCase
TestMailboxHistories.settings = settings(MACHINE, max_examples=20, stateful_step_count=20)
