"""What every kind of storage must do as a root: a backend adds one class to this suite, not a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.errors import NotARoot, ObjectMissing, RootLost
from headgate_contract.paths import ROOT
from headgate_contract.records import slot_log
from headgate_contract.root_store import RootStore, make_root
from headgate_contract.store import ObjectStore
from tests.contract.lives import STREAM, started
from tests.contract.store_suite import race


class RootSuite:
    """Subclasses give a fixture `inner`: a store whose place may not be there yet."""

    @pytest.fixture
    def store(self, inner: ObjectStore) -> RootStore:
        """A root as a driver has it: told which one it was launched for."""
        identity, made = make_root(RootStore(inner), by="anna", at_ms=1)
        assert made
        return RootStore(inner, identity.id)

    def test_of_all_who_make_a_root_at_once_one_does(self, inner: ObjectStore) -> None:
        outcomes = race(lambda racer: make_root(RootStore(inner), by=f"racer {racer}", at_ms=racer), 8)
        assert [made for _, made in outcomes].count(True) == 1
        assert len({identity.id for identity, _ in outcomes}) == 1
        assert RootStore(inner).identity() == outcomes[0][0]

    def test_a_place_that_is_no_root_is_not_taken_for_an_empty_one(self, inner: ObjectStore) -> None:
        inner.make()
        whichever = RootStore(inner)
        for look in (
            lambda: whichever.list("streams"),
            lambda: whichever.stat("streams/a"),
            lambda: whichever.create("streams/a", b"1"),
            whichever.check_writable,
            whichever.identity,
        ):
            with pytest.raises(NotARoot, match=rf"no storage root of Headgate: it has no {ROOT}.*headgate deploy"):
                look()
        assert inner.list("") == []

    def test_streams_without_an_identity_are_a_root_only_if_a_person_says_so(self, inner: ObjectStore) -> None:
        inner.make()
        inner.create("streams/orders/slots/00000001.json", b"1")
        with pytest.raises(NotARoot, match=rf"holds streams and no {ROOT}.*--adopt-root"):
            make_root(RootStore(inner), by="anna", at_ms=1)
        identity, made = make_root(RootStore(inner), by="anna", at_ms=1, adopt=True)
        assert made
        assert make_root(RootStore(inner), by="bert", at_ms=2) == (identity, False)

    def test_the_identity_is_no_object_of_anybodys(self, store: RootStore) -> None:
        store.create("streams/a", b"1")
        assert [info.path for info in store.list("")] == ["streams/a"]

    def test_nothing_is_written_where_the_root_was(self, store: RootStore, inner: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(b"1")
        store.create("streams/a", b"1")
        identity = inner.read(ROOT)
        inner.delete(ROOT)
        for what in _everything(store, tmp_path / "local"):
            with pytest.raises(RootLost, match=rf"the root .* is gone: {ROOT} is not there; is its storage mounted"):
                what()
        assert [info.path for info in inner.list("")] == ["streams/a"]
        inner.create(ROOT, identity)
        assert store.create("streams/b", b"1")
        with pytest.raises(ObjectMissing):
            store.read("streams/gone")

    def test_nothing_is_written_to_another_root(self, store: RootStore, inner: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(b"1")
        store.create("streams/a", b"1")
        first = RootStore(inner).identity()
        inner.delete(ROOT)
        second, made = make_root(RootStore(inner), by="bert", at_ms=2, adopt=True)
        assert made
        assert second.id != first.id
        for what in _everything(store, tmp_path / "local"):
            with pytest.raises(RootLost, match=rf"it is {second.id}, that was {first.id}"):
                what()

    def test_an_identity_that_cannot_be_read_is_not_believed(self, store: RootStore, inner: ObjectStore) -> None:
        inner.replace(ROOT, b"torn")
        with pytest.raises(RootLost, match=rf"{ROOT} is not a root file"):
            store.create("streams/a", b"1")

    def test_a_log_goes_on_only_on_the_root_where_it_was_begun(self, store: RootStore, inner: ObjectStore) -> None:
        log = slot_log(store, STREAM)
        first = log.append(None, started(1))
        everything = {info.path: inner.read(info.path) for info in inner.list("")}
        for path in everything:
            inner.delete(path)
        with pytest.raises(RootLost):
            log.append(first.number, started(2))
        with pytest.raises(RootLost):
            log.peek(first.number.next())
        with pytest.raises(RootLost):
            slot_log(store, STREAM).read()
        assert inner.list("") == []
        for path, data in everything.items():
            inner.create(path, data)
        assert log.peek(first.number.next()) is None
        assert log.append(first.number, started(2)).number == 2


def _everything(store: RootStore, local: Path) -> list[Callable[[], object]]:
    """Every write, and every look that would find nothing."""
    return [
        lambda: store.create("streams/new", b"1"),
        lambda: store.replace("streams/new", b"1"),
        lambda: store.upload(local, "streams/new"),
        lambda: store.move("streams/a", "streams/new"),
        lambda: store.sync("streams/a"),
        lambda: store.delete("streams/a"),
        lambda: store.delete_all("streams"),
        store.check_writable,
        lambda: store.read("streams/gone"),
        lambda: store.stat("streams/gone"),
        lambda: store.list("gone"),
        lambda: store.list_after("gone", "a"),
        lambda: store.folders("gone"),
        lambda: store.read_all(["streams/a", "streams/gone"]),
        lambda: store.read_aged("streams/gone"),
        lambda: store.download("streams/gone", local),
    ]
