"""The object store on an S3 that refuses, conflicts, or does what was asked and loses the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate_contract import store_s3
from headgate_contract.errors import SlotTaken, StorageError
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.records import GenerationStarted, slot_log
from headgate_contract.restore import StartFresh
from headgate_contract.store import ObjectStore, open_store
from tests.contract.store_suite import race, unique
from tests.servers.conftest import BUCKET
from tests.servers.faulty_proxy import (
    Fault,
    FaultyProxy,
    answers,
    faulty_proxy,
    loses_the_answer,
    loses_the_answer_and_says_503,
)
from tests.servers.moto import options

pytestmark = pytest.mark.servers

SLOW_DOWN = answers(503, "SlowDown", "reduce your request rate")
UNAVAILABLE = answers(503, "ServiceUnavailable")
CONFLICT = answers(409, "ConditionalRequestConflict")
DENIED = answers(403, "AccessDenied", "no right to write here")
INVALID = answers(400, "InvalidRequest", "nonsense")
LOST = [
    pytest.param(loses_the_answer, id="connection broken"),
    pytest.param(loses_the_answer_and_says_503, id="503 from a gateway"),
]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_s3, "_FIRST_PAUSE_S", 0.001)


@pytest.fixture(scope="module")
def standing(moto: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(moto) as found:
        yield found


@pytest.fixture
def proxy(standing: FaultyProxy) -> FaultyProxy:
    """The proxy, with nothing that goes wrong and nothing seen yet."""
    standing.faults.clear()
    standing.seen.clear()
    return standing


@pytest.fixture(scope="module")
def impatient(standing: FaultyProxy) -> ObjectStore:
    """A store of which only our own repeats are left: those of botocore have pauses that nobody can shorten."""
    once = {"config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": 1}}}
    return open_store(f"s3://{BUCKET}/{unique()}", {**options(standing.endpoint), **once})


@pytest.fixture(scope="module")
def as_users_have_it(standing: FaultyProxy) -> ObjectStore:
    """A store where botocore and s3fs repeat too, who know nothing of what was lost."""
    return open_store(f"s3://{BUCKET}/{unique()}", options(standing.endpoint))


@pytest.fixture(scope="module")
def behind(moto: str, impatient: ObjectStore) -> ObjectStore:
    return open_store(impatient.url, options(moto))


@pytest.fixture
def store(impatient: ObjectStore, proxy: FaultyProxy) -> ObjectStore:
    impatient.delete_all("")
    proxy.seen.clear()
    return impatient


@pytest.fixture
def patient(as_users_have_it: ObjectStore, proxy: FaultyProxy) -> ObjectStore:
    as_users_have_it.delete_all("")
    proxy.seen.clear()
    return as_users_have_it


@pytest.fixture
def direct(store: ObjectStore, behind: ObjectStore) -> ObjectStore:
    """The same root, not through the proxy."""
    assert store.url == behind.url
    return behind


def test_the_proxy_passes_everything_else_on(proxy: FaultyProxy, store: ObjectStore, direct: ObjectStore) -> None:
    assert store.create("a/b", b"1")
    assert store.read("a/b") == direct.read("a/b") == b"1"
    assert store.list("") == direct.list("")
    assert proxy.count("PUT") == 1


@pytest.mark.parametrize("lost", LOST)
def test_a_create_whose_answer_is_lost_knows_that_it_has_won(
    proxy: FaultyProxy, patient: ObjectStore, lost: Fault
) -> None:
    proxy.next("PUT", lost)
    assert patient.create("slots/1", b"mine")
    assert patient.read("slots/1") == b"mine"
    assert proxy.count("PUT") > 1


@pytest.mark.parametrize("lost", LOST)
def test_a_create_that_loses_and_whose_answer_is_lost_knows_that_it_has_lost(
    proxy: FaultyProxy, patient: ObjectStore, moto: str, lost: Fault
) -> None:
    open_store(patient.url, options(moto)).create("slots/1", b"theirs")
    proxy.next("PUT", lost)
    assert not patient.create("slots/1", b"mine")
    assert patient.read("slots/1") == b"theirs"


@pytest.mark.parametrize("lost", LOST)
def test_an_answer_lost_again_and_again_leads_to_one_object(
    proxy: FaultyProxy, patient: ObjectStore, lost: Fault
) -> None:
    proxy.next("PUT", lost, lost, lost)
    assert patient.create("slots/1", b"mine")
    assert len(patient.list("slots")) == 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(SLOW_DOWN, id="slow down"),
        pytest.param(UNAVAILABLE, id="unavailable"),
        pytest.param(CONFLICT, id="conflict"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "replace", "read", "list", "stat", "delete", "move"])
def test_not_now_is_tried_again(
    proxy: FaultyProxy, store: ObjectStore, direct: ObjectStore, fault: Fault, verb: str
) -> None:
    direct.create("there", b"1")
    for method in ("PUT", "GET", "HEAD", "DELETE", "POST"):
        proxy.next(method, *[fault] * 3)
    match verb:
        case "create":
            assert store.create("a", b"1")
        case "replace":
            store.replace("a", b"1")
        case "read":
            assert store.read("there") == b"1"
        case "list":
            assert len(store.list("")) == 1
        case "stat":
            assert store.stat("there") is not None
        case "delete":
            assert store.delete("there")
        case _:
            assert store.move("there", "a")
    assert len(direct.list("")) == {"create": 2, "replace": 2, "delete": 0}.get(verb, 1)


@pytest.mark.parametrize(
    ("fault", "says"), [pytest.param(DENIED, "no right", id="denied"), pytest.param(INVALID, "nonsense", id="invalid")]
)
def test_what_will_not_get_better_is_said_at_once_and_is_no_lost_race(
    proxy: FaultyProxy, store: ObjectStore, fault: Fault, says: str
) -> None:
    proxy.next("PUT", fault)
    with pytest.raises(StorageError, match=rf"cannot create a on s3://.*{says}"):
        store.create("a", b"1")
    assert proxy.count("PUT") == 1
    assert store.create("a", b"1")


def test_a_store_that_never_gets_better_is_given_up(proxy: FaultyProxy, store: ObjectStore) -> None:
    proxy.next("PUT", *[UNAVAILABLE] * 100)
    with pytest.raises(StorageError, match=r"cannot create a on s3://.*not now"):
        store.create("a", b"1")


def test_racers_whose_answers_are_lost_still_have_one_winner(proxy: FaultyProxy, patient: ObjectStore) -> None:
    proxy.next("PUT", *[loses_the_answer, loses_the_answer_and_says_503, CONFLICT] * 8)
    won = race(lambda racer: patient.create("slots/1", b"racer %d" % racer), 24)
    assert won.count(True) == 1
    assert patient.read("slots/1") == b"racer %d" % won.index(True)


class TestSlotLog:
    """A writer whose answer was lost for good does not know whether its slot is there; the repeat finds out."""

    def started(self, by: str) -> GenerationStarted:
        return GenerationStarted(
            generation=Generation(1),
            decision=StartFresh("the stream has never run"),
            first_checkpoint=CheckpointId(1),
            deployed=1,
            by=by,
            host="h",
            at_ms=1,
            launch=by,
            log="",
        )

    def test_a_repeat_after_an_open_outcome_finds_its_own_slot(self, proxy: FaultyProxy, store: ObjectStore) -> None:
        log = slot_log(store, StreamName("orders"))
        proxy.next("PUT", loses_the_answer_and_says_503, *[UNAVAILABLE] * 99)
        with pytest.raises(StorageError):
            log.append(None, self.started("me"))
        proxy.faults.clear()
        assert log.append(None, self.started("me")).number == SlotNumber(1)
        assert [slot.record.by for slot in log.read() if isinstance(slot.record, GenerationStarted)] == ["me"]

    def test_a_repeat_after_an_open_outcome_finds_who_came_first(
        self, proxy: FaultyProxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        log = slot_log(store, StreamName("orders"))
        proxy.next("PUT", *[UNAVAILABLE] * 99)
        with pytest.raises(StorageError):
            log.append(None, self.started("me"))
        slot_log(direct, StreamName("orders")).append(None, self.started("them"))
        proxy.faults.clear()
        with pytest.raises(SlotTaken):
            log.append(None, self.started("me"))
