"""What may name things, and where they lie on shared storage."""

from __future__ import annotations

import copy
import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from headgate_contract.errors import InvalidName, StorageError
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber, StreamName, VertexUid
from headgate_contract.paths import (
    HEARTBEATS,
    METADATA,
    StreamPaths,
    heartbeat_of,
    moment_of,
    number_of,
    numbered,
    stream_of,
)
from headgate_contract.store import check_folder, check_path, open_store
from tests.contract import records
from tests.contract.profiles import PROPERTY

NAMES = (StreamName, VertexUid, SavepointName, RequestId)
HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "a..b",
    "/",
    "a/b",
    "../a",
    "-a",
    ".a",
    "_a",
    "a b",
    "a\n",
    "a\0",
    "ä",
    "a" * 101,
    "~",
    "a~b",
    "٣",
]


class TestNames:
    @pytest.mark.parametrize("kind", NAMES)
    @pytest.mark.parametrize("name", ["a", "0", "orders", "orders-v2_final.1", "A" * 100])
    def test_a_good_name_is_a_text(self, kind: type[StreamName], name: str) -> None:
        found = kind(name)
        assert found == name
        assert isinstance(found, str)
        assert type(copy.deepcopy(found)) is type(pickle.loads(pickle.dumps(found))) is kind

    @pytest.mark.parametrize("kind", [StreamName, VertexUid, SavepointName])
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_name_that_no_path_can_carry_is_refused_with_the_rule(self, kind: type[StreamName], name: str) -> None:
        with pytest.raises(InvalidName, match=rf"is not a valid {kind.noun}; use 1 to 100 letters"):
            kind(name)

    @pytest.mark.parametrize(
        "name", [name for name in HOSTILE if name != "a" * 101] + ["a" * 201, "a~1~2", "a~0", "a~"]
    )
    def test_a_request_id_follows_the_same_rule_with_an_ordinal(self, name: str) -> None:
        with pytest.raises(InvalidName, match="is not a valid request id; use 1 to 200 letters"):
            RequestId(name)

    @pytest.mark.parametrize("value", [None, 1, b"a", ["a"]])
    def test_what_is_no_text_is_no_name(self, value: object) -> None:
        with pytest.raises(InvalidName, match="is not a valid stream name"):
            StreamName(value)  # type: ignore[arg-type]

    def test_a_retry_takes_the_next_ordinal(self) -> None:
        first = RequestId("dag_1.run-2")
        assert first.next_ordinal() == "dag_1.run-2~2"
        assert first.next_ordinal().next_ordinal() == "dag_1.run-2~3"
        assert RequestId("a" * 200).next_ordinal().next_ordinal() == "a" * 200 + "~3"

    @PROPERTY
    @given(st.text(max_size=8) | st.from_regex(r"[a-z./~\\-]{1,6}", fullmatch=True))
    @example("a..b")
    def test_whatever_is_accepted_stays_below_its_folder(self, name: str) -> None:
        try:
            stream = StreamName(name)
        except InvalidName:
            return
        paths = StreamPaths(stream)
        savepoint = paths.savepoint(SavepointName(name), CheckpointId(1), Generation(1))
        for path in (paths.readable, paths.slots, paths.heartbeat(Generation(1)), savepoint):
            assert check_path(path, "root") == path
            assert path.count("/") <= 3


class TestNumbers:
    @pytest.mark.parametrize("kind", [Generation, CheckpointId, SlotNumber])
    def test_they_count_from_one(self, kind: type[Generation]) -> None:
        assert kind(1).next() == 2
        assert type(kind(1).next()) is kind
        assert type(pickle.loads(pickle.dumps(kind(7)))) is kind

    @pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None])
    def test_everything_else_is_refused(self, value: object) -> None:
        with pytest.raises(InvalidName, match=r"is not a valid checkpoint id; it is a whole number from 1 on"):
            CheckpointId(value)  # type: ignore[arg-type]


class TestPaths:
    def test_every_path_is_where_the_formats_say(self) -> None:
        paths = StreamPaths(StreamName("orders"))
        assert [
            paths.root,
            paths.readable,
            paths.slots,
            paths.decisions,
            paths.request(RequestId("r~2")),
            paths.answer(RequestId("r~2")),
            paths.checkpoint(CheckpointId(42), Generation(7)),
            paths.shared_file("0001.sst"),
            paths.savepoint(SavepointName("v1"), CheckpointId(42), Generation(7)),
            paths.event(3, 1_700_000_000_000, "abc"),
            paths.heartbeat(Generation(7)),
            numbered(paths.slots, SlotNumber(42)),
            METADATA,
        ] == [
            "streams/orders",
            "streams/orders/stream.json",
            "streams/orders/slots",
            "streams/orders/decisions",
            "streams/orders/requests/r~2.json",
            "streams/orders/answers/r~2.json",
            "streams/orders/checkpoints/chk-42-g7",
            "streams/orders/shared/0001.sst",
            "streams/orders/savepoints/v1-42-g7",
            "streams/orders/history/0000000003-001700000000000-abc.json",
            "fleet/heartbeats/orders.g7.json",
            "streams/orders/slots/00000042.json",
            "_metadata",
        ]

    def test_of_a_savepoints_folder_it_is_known_which_generation_has_begun_it(self) -> None:
        paths = StreamPaths(StreamName("orders"))
        folder = paths.savepoint(SavepointName("v1"), CheckpointId(42), Generation(7))
        assert paths.attempt_of(folder) == (42, 7)
        others = (
            f"{folder}/state",
            f"{paths.savepoints}/v1",
            f"{paths.savepoints}/v1-42-g7-copy",
            "elsewhere/v1-42-g7",
        )
        assert [paths.attempt_of(other) for other in others] == [None] * 4

    @PROPERTY
    @given(records.numbers.map(SlotNumber))
    @example(SlotNumber(99_999_999))
    @example(SlotNumber(100_000_000))
    def test_a_slots_number_is_found_again(self, number: SlotNumber) -> None:
        assert number_of(numbered("a/b", number)) == number

    @pytest.mark.parametrize(
        "name",
        [
            "00000000.json",
            "1.json",
            "000000001.json",
            "00000001",
            "00000001.json.tmp",
            "-0000001.json",
            "٠٠٠٠٠٠٠١.json",
        ],
    )
    def test_what_is_no_slot_has_no_number(self, name: str) -> None:
        assert number_of(f"a/b/{name}") is None

    @PROPERTY
    @given(records.names.map(StreamName), records.generations)
    @example(StreamName("a.g1"), Generation(2))
    @example(StreamName("a.json"), Generation(1))
    def test_whose_heartbeat_it_is_is_found_again(self, stream: StreamName, generation: Generation) -> None:
        assert heartbeat_of(StreamPaths(stream).heartbeat(generation)) == (stream, generation)

    @PROPERTY
    @given(st.text(max_size=12))
    @example("..g1.json")
    @example("a.g0.json")
    @example("a.g٣.json")
    def test_any_other_file_is_nobodys_heartbeat_or_only_its_own(self, name: str) -> None:
        found = heartbeat_of(f"{HEARTBEATS}/{name}")
        assert found is None or StreamPaths(found[0]).heartbeat(found[1]) == f"{HEARTBEATS}/{name}"

    @PROPERTY
    @given(records.names.map(StreamName))
    def test_whose_file_it_is_is_found_again(self, stream: StreamName) -> None:
        assert stream_of(StreamPaths(stream).readable) == stream

    @pytest.mark.parametrize("path", ["streams/orders", "fleet/heartbeats/x", "streams/../x", "streams/a b/x", "x"])
    def test_what_belongs_to_no_stream_has_none(self, path: str) -> None:
        assert stream_of(path) is None

    def test_an_events_moment_is_in_its_name(self) -> None:
        assert moment_of(StreamPaths(StreamName("a")).event(2, 17, "x-y")) == 17
        assert moment_of("streams/a/history/readme") is None


class TestPathsOnAStore:
    @PROPERTY
    @given(st.text(st.sampled_from("a./\\~\0 é"), max_size=8))
    @example("..")
    @example("a/../../b")
    def test_no_path_leaves_the_root(self, path: str) -> None:
        store = open_store("memory://inner/root")
        outside = open_store("memory://inner")
        try:
            store.create(path, b"1")
        except StorageError:
            assert store.list("") == []
        else:
            assert [info.path for info in store.list("")] == [path]
        assert all(info.path.startswith("root/") for info in outside.list(""))
        store.delete_all("")

    def test_a_folder_may_end_with_a_slash_and_the_root_is_one(self) -> None:
        assert check_folder("a/b/", "root") == "a/b"
        assert check_folder("", "root") == ""
