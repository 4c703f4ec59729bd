"""The codec: frozen dataclasses to plain JSON values and back, strictly."""

from __future__ import annotations

import enum
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import given

from headgate_contract.codec import from_plain, to_plain
from headgate_contract.durations import Duration
from headgate_contract.errors import CorruptObject
from headgate_contract.ids import Generation, StreamName
from headgate_contract.records import DecisionRecord, SlotRecord
from headgate_contract.restore import RestoreFrom, StartFresh
from tests.contract import records
from tests.contract.lives import snapshot
from tests.contract.profiles import FEW


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Circle:
    TYPE: ClassVar[str] = "circle"
    radius: float


@dataclass(frozen=True)
class Square:
    TYPE: ClassVar[str] = "square"
    side: int
    colours: frozenset[Colour] = frozenset()


@dataclass(frozen=True)
class Drawing:
    shapes: tuple[Circle | Square, ...]
    by: StreamName | None = None
    sizes: Mapping[StreamName, int] = field(default_factory=dict)
    loose: dict[str, Any] = field(default_factory=dict)
    either: int | str = 0
    flag: bool = False
    ratio: float = 0.0


@dataclass(frozen=True)
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


class TestCodec:
    def test_unions_enums_sets_maps_and_ids_come_back(self) -> None:
        drawing = Drawing(
            shapes=(Circle(1.5), Square(2, frozenset(Colour))),
            by=StreamName("anna"),
            sizes={StreamName("a"): 1},
            loose={"x": [1, {"y": None}]},
            either="text",
            flag=True,
            ratio=2,
        )
        plain = json.loads(json.dumps(to_plain(drawing)))
        found = from_plain(Drawing, plain, "here")
        assert found == drawing
        assert isinstance(found.by, StreamName)
        assert isinstance(found.shapes[0].radius, float)
        assert plain["shapes"] == [
            {"type": "circle", "radius": 1.5},
            {"type": "square", "side": 2, "colours": ["blue", "red"]},
        ]

    @pytest.mark.parametrize(
        ("plain", "says"),
        [
            ({"shapes": 1}, r"here\.shapes should be a list, not int"),
            ({"shapes": [1]}, r"here\.shapes\[0\] should be a dict, not int"),
            ({"shapes": [{"type": "circle"}]}, r"here\.shapes\[0\] lacks the field 'radius'"),
            ({"shapes": [{"radius": 1}]}, r"shapes\[0\] has the type None, known are circle, square"),
            ({"shapes": [{"type": {}}]}, r"shapes\[0\] has the type \{\}, known are circle, square"),
            ({"shapes": [{"type": "circle", "radius": "1"}]}, r"radius should be a float, not str"),
            ({"shapes": [{"type": "circle", "radius": True}]}, r"radius should be a float, not bool"),
            ({"shapes": [{"type": "square", "side": 1.0}]}, r"side should be a int, not float"),
            ({"shapes": [{"type": "square", "side": True}]}, r"side should be a int, not bool"),
            ({"shapes": [{"type": "square", "side": 1, "colours": ["green"]}]}, r"'green', allowed are red, blue"),
            ({"shapes": [{"type": "square", "side": 1, "colours": [[]]}]}, r"\[\], allowed are red, blue"),
            ({"shapes": [], "by": "no/name"}, r"here\.by: 'no/name' is not a valid stream name"),
            ({"shapes": [], "by": 1}, r"here\.by should be a StreamName, not int"),
            ({"shapes": [], "sizes": {"a b": 1}}, r"here\.sizes: 'a b' is not a valid stream name|here: 'a b'"),
            ({"shapes": [], "sizes": {"a": "1"}}, r"here\.sizes\.a should be a int"),
            ({"shapes": [], "sizes": []}, r"here\.sizes should be a dict"),
            ({"shapes": [], "loose": []}, r"here\.loose should be a dict"),
            ({"shapes": [], "either": None}, r"here\.either is a NoneType, which is none of those allowed"),
            ({"shapes": [], "flag": 1}, r"here\.flag should be a bool, not int"),
            ({"shapes": [], "x": 1, "y": 2}, r"here has unknown fields: x, y"),
            ({}, r"here lacks the field 'shapes'"),
        ],
    )
    def test_what_does_not_fit_is_named_with_its_place(self, plain: object, says: str) -> None:
        with pytest.raises(CorruptObject, match=says):
            from_plain(Drawing, plain, "here")

    def test_a_value_that_its_own_class_refuses_is_named(self) -> None:
        with pytest.raises(CorruptObject, match="here: 3 is odd"):
            from_plain(Even, {"number": 3}, "here")

    def test_a_record_is_not_read_as_another_of_equal_shape(self) -> None:
        plain = to_plain(StartFresh("because"))
        assert from_plain(StartFresh, plain, "here") == StartFresh("because")
        with pytest.raises(CorruptObject, match="has the type 'start-fresh', not 'restore-from'"):
            from_plain(RestoreFrom, {**to_plain(RestoreFrom(snapshot(1), "")), "type": "start-fresh"}, "here")

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes", 1j, {1: b""}, [Circle]])
    def test_what_has_no_json_form_is_refused_when_it_is_written(self, value: object) -> None:
        with pytest.raises(TypeError, match="no JSON form"):
            to_plain(value)

    def test_a_field_of_a_type_that_has_no_json_form_is_a_mistake_of_ours(self) -> None:
        with pytest.raises(TypeError, match="no JSON form for"):
            from_plain(bytes, "x", "here")

    def test_free_form_json_is_taken_as_it_is(self) -> None:
        assert from_plain(Any, {"a": 1}, "here") == {"a": 1}
        assert from_plain(dict, {"a": 1}, "here") == {"a": 1}
        assert from_plain(object, None, "here") is None

    def test_ids_and_durations_become_plain_numbers_and_texts(self) -> None:
        plain = to_plain([Generation(3), StreamName("a"), Duration(5), True, None])
        assert [type(each) for each in plain] == [int, str, int, bool, type(None)]

    @FEW
    @given(records.slot_records)
    def test_records_can_be_sent_to_other_processes(self, record: SlotRecord) -> None:
        assert pickle.loads(pickle.dumps(record)) == record

    @FEW
    @given(records.decision_records)
    def test_plain_values_are_what_json_gives_back(self, record: DecisionRecord) -> None:
        assert json.loads(json.dumps(to_plain(record))) == to_plain(record)
