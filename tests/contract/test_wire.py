"""What is stored comes back as it was; what is newer, torn, unknown, missing or mistyped is refused by name."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from headgate_contract import wire
from headgate_contract.codec import from_plain, to_plain
from headgate_contract.errors import CorruptObject, NewerVersion, SnapshotDamaged
from headgate_contract.ids import CheckpointId, Generation, SavepointName
from headgate_contract.mailbox import Request
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata, decode_metadata, read_metadata
from tests.contract import records
from tests.contract.lives import STREAM, snapshot
from tests.contract.profiles import FEW, PROPERTY
from tests.contract.stored_values import VALUES, resealed

KINDS = sorted(records.STORED)
ANSWER = wire.encode("answer", {})


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_comes_back_as_it_was(kind: str) -> None:
    body_kind, bodies = records.STORED[kind]

    @FEW
    @given(bodies)
    def comes_back(body: object) -> None:
        data = wire.encode(kind, body)
        assert data.count(b"\n") == 1
        assert wire.decode(kind, data, body_kind, "here") == body
        assert wire.encode(kind, wire.decode(kind, data, body_kind, "here")) == data, "the bytes are canonical"

    comes_back()


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_a_newer_version_is_refused_by_name_whatever_it_looks_like(kind: str) -> None:
    newer = wire.VERSIONS[kind] + 1
    for envelope in (
        {"headgate": kind, "version": newer, "body": {"what": "nobody knows"}},
        {"headgate": kind, "version": newer, "compressed": "eJw="},
    ):
        with pytest.raises(NewerVersion, match=rf"here is an? {kind} file of version {newer}.*upgrade Headgate"):
            wire.decode(kind, json.dumps(envelope).encode(), records.STORED[kind][0], "here")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_is_named_and_never_taken_for_another(kind: str) -> None:
    """Whatever is done to one place of a stored file: an error that names it; never another exception."""
    body_kind, bodies = records.STORED[kind]

    @FEW
    @given(bodies, st.data())
    def survives(body: object, data: st.DataObject) -> None:
        good = wire.encode(kind, body)
        place = data.draw(st.integers(0, len(good) - 1))
        what = data.draw(st.sampled_from(["cut", "flip", "drop", "junk"]))
        bad = {
            "cut": good[:place],
            "flip": good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :],
            "drop": good[:place] + good[place + 1 :],
            "junk": good[:place] + data.draw(st.binary(min_size=1, max_size=3)) + good[place:],
        }[what]
        with pytest.raises(CorruptObject):
            wire.decode(kind, bad, body_kind, "here")

    survives()


def _places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all fields of dataclasses in `plain` that a type pins: those in free-form JSON are left out."""
    free = {
        "plan",
        "args",
        "result",
        "details",
        "settings",
        "position",
        "version",
        "descriptors",
        "sinks",
        "extra",
        "parts",
    }
    found = []
    if isinstance(plain, dict):
        for key, value in plain.items():
            if key != "type":
                found.append((*path, key))
            if key not in free:
                found += _places(value, (*path, key))
    if isinstance(plain, list):
        for index, value in enumerate(plain):
            found += _places(value, (*path, index))
    return found


def _at(plain: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def _of_another_type(value: Any) -> Any:
    return {bool: "true", int: "1", str: 12_345, list: {}, dict: []}[type(value)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_or_mistyped_field_is_named(kind: str) -> None:
    body_kind, bodies = records.STORED[kind]

    @FEW
    @given(bodies, st.data())
    def is_named(body: object, data: st.DataObject) -> None:
        plain = to_plain(body)
        path = data.draw(st.sampled_from([path for path in _places(plain) if _at(plain, path) is not None]))
        mistyped = copy.deepcopy(plain)
        _at(mistyped, path[:-1])[path[-1]] = _of_another_type(_at(plain, path))
        with pytest.raises(CorruptObject, match=rf"here.*{re.escape(str(path[-1]))}"):
            from_plain(body_kind, mistyped, "here")
        unknown = copy.deepcopy(plain)
        unknown["surely-unknown"] = 1
        with pytest.raises(CorruptObject, match="here has unknown fields: surely-unknown"):
            from_plain(body_kind, unknown, "here")

    is_named()


@pytest.mark.parametrize(
    ("body_kind", "cls"),
    [
        (body_kind, cls)
        for body_kind, _ in records.STORED.values()
        for cls in (body_kind.__args__ if hasattr(body_kind, "__args__") else (body_kind,))
    ],
    ids=lambda value: getattr(value, "__name__", "of"),
)
def test_each_missing_field_is_named_unless_it_has_a_default(body_kind: Any, cls: type[Any]) -> None:
    bodies = next(bodies for kind, bodies in records.STORED.values() if kind is body_kind)
    plain = _example(bodies, cls)
    for each in dataclasses.fields(cls):
        fewer = {name: value for name, value in plain.items() if name != each.name}
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            with pytest.raises(CorruptObject, match=rf"here lacks the field '{each.name}'"):
                from_plain(body_kind, fewer, "here")
        else:
            assert isinstance(from_plain(body_kind, fewer, "here"), cls)


def _example(bodies: st.SearchStrategy[Any], cls: type[Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    @settings(PROPERTY, max_examples=5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(bodies.filter(lambda body: isinstance(body, cls)))
    def look(body: object) -> None:
        found.append(to_plain(body))

    look()
    return found[0]


class TestEnvelope:
    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "here is not an answer file"),
            (b"\xff", "here is not an answer file"),
            (b"nonsense", "here is not an answer file"),
            (b"null", "the envelope is missing"),
            (b"[]", "the envelope is missing"),
            (b"{}", "the envelope is missing"),
            (b'{"headgate":"answer"}', "the envelope is missing"),
            (b'{"headgate":"slot","version":1,"body":{}}', "here is a slot file, not an answer file"),
            (b'{"headgate":["answer"],"version":1,"body":{}}', "not an answer file"),
            (b'{"headgate":"answer","version":0,"body":{}}', "has the version 0"),
            (b'{"headgate":"answer","version":true,"body":{}}', "has the version True"),
            (b'{"headgate":"answer","version":"1","body":{}}', "has the version '1'"),
            (
                b'{"headgate":"answer","version":1,"body":{}}',
                "an answer file of version 1; this Headgate reads version 2",
            ),
            (b'{"headgate":"answer","version":2}', "does not end in its checksum"),
            (resealed(ANSWER, b'{"at":"",', b"{"), "the envelope is not that of version 2"),
            (resealed(ANSWER, b'{"at"', b'{"":1,"at"'), "the envelope is not that of version 2"),
            (b'{"at":"","body":[],"headgate":"answer","version":2,"sha256":"0"}', "does not end in its checksum"),
            (resealed(ANSWER, b'"body":{}', b'"body":[]'), "here should be a dict, not list"),
            (b'{"headgate":"answer","version":1,"body":{"at_ms":NaN}}', "NaN is no number"),
            (b'{"headgate":"answer","version":1,"body":' + b"9" * 5000 + b"}", "here is not an answer file"),
            (b"[" * 200_000, "here is not an answer file"),
            (b'{"a":' * 200_000, "here is not an answer file"),
        ],
    )
    def test_what_is_no_such_file_is_named(self, data: bytes, says: str) -> None:
        with pytest.raises(CorruptObject, match=says):
            wire.decode("answer", data, records.Answer, "here")

    def test_bytes_are_one_line_of_json_with_sorted_keys(self) -> None:
        line = '{"at":"x","body":{"a":["ü",null],"b":1},"headgate":"segment","version":2'.encode()
        sealed = line + f',"sha256":"{wire.sha256(line)}"}}\n'.encode()
        assert wire.encode("segment", {"b": 1, "a": ["ü", None]}, "x") == sealed

    def test_a_checksum_is_that_of_the_bytes(self) -> None:
        assert wire.sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class TestSnapshotMetadata:
    def metadata(self) -> SnapshotMetadata:
        return SnapshotMetadata(
            stream=STREAM,
            id=CheckpointId(7),
            generation=Generation(2),
            kind=SnapshotKind.CHECKPOINT,
            max_parallelism=128,
            created_ms=1,
        )

    def test_metadata_is_read_as_the_slot_pins_it(self) -> None:
        data = self.metadata().encode()
        ref = dataclasses.replace(snapshot(7, 2), metadata_length=len(data), metadata_sha256=wire.sha256(data))
        assert decode_metadata(data, ref, "here") == self.metadata()

    @pytest.mark.parametrize("kind", SnapshotKind)
    def test_f66_every_kind_of_handle_comes_back(self, kind: SnapshotKind) -> None:
        _, full = VALUES["snapshot"]
        name = SavepointName("before") if kind is SnapshotKind.SAVEPOINT else None
        metadata = dataclasses.replace(full, kind=kind, name=name)
        [vertex] = metadata.vertices.values()
        [source] = metadata.sources.values()
        assert all([vertex.subtasks, vertex.operator_states, source.files, source.position, metadata.committables])
        assert read_metadata(metadata.encode(), "here") == metadata

    def test_other_bytes_than_completed_are_damage(self) -> None:
        data = self.metadata().encode()
        ref = dataclasses.replace(snapshot(7, 2), metadata_length=len(data), metadata_sha256=wire.sha256(data))
        with pytest.raises(SnapshotDamaged, match=r"here of checkpoint 7 has \d+ bytes, it completed"):
            decode_metadata(data[:-1], ref, "here")
        with pytest.raises(SnapshotDamaged, match="here of checkpoint 7 has another checksum"):
            decode_metadata(resealed(data, b"128", b"256"), ref, "here")

    def test_metadata_that_no_slot_pins_is_read_or_damaged_or_newer(self) -> None:
        data = self.metadata().encode()
        assert read_metadata(data, "here") == self.metadata()
        with pytest.raises(SnapshotDamaged, match="here lacks the field 'max_parallelism'"):
            read_metadata(resealed(data, b'"max_parallelism":128,', b""), "here")
        with pytest.raises(NewerVersion, match="here is a snapshot file of version 9"):
            read_metadata(resealed(data, b'"version":', b'"version":9'), "here")
        with pytest.raises(SnapshotDamaged, match="here is damaged: its checksum is that of other bytes"):
            read_metadata(data.replace(b"128", b"256"), "here")

    @pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "..", ".", "", "a/b", "a\\b", "a\0b"])
    def test_a_file_name_that_leaves_its_folder_is_damage(self, name: str) -> None:
        _, full = VALUES["snapshot"]
        [(uid, vertex)] = full.vertices.items()
        [(reader, source)] = full.sources.items()
        [subtask, *_] = vertex.subtasks
        stray = dataclasses.replace(subtask.files[0], name=name)
        own = {"name": "0001.arrow", "local_name": ""}
        bad = [
            dataclasses.replace(subtask, files=(stray,)),
            *(dataclasses.replace(subtask, version={"files": [own, own | {key: name}]}) for key in own if name),
        ]
        for each in bad:
            vertices = {uid: dataclasses.replace(vertex, subtasks=(each,))}
            with pytest.raises(SnapshotDamaged, match=r"here names a file .* which is no plain file name"):
                read_metadata(dataclasses.replace(full, vertices=vertices).encode(), "here")
        sources = {reader: dataclasses.replace(source, files=(stray,))}
        with pytest.raises(SnapshotDamaged, match="here names a file"):
            read_metadata(dataclasses.replace(full, sources=sources).encode(), "here")

    @FEW
    @given(records.metadata)
    def test_the_handles_are_every_file_it_names(self, metadata: SnapshotMetadata) -> None:
        in_vertices = sum(len(task.files) for each in metadata.vertices.values() for task in each.subtasks)
        in_sources = sum(len(each.files) for each in metadata.sources.values())
        assert len(list(metadata.handles())) == in_vertices + in_sources

    def test_a_snapshot_is_called_by_name_and_id(self) -> None:
        assert str(snapshot(7)) == "checkpoint 7"
        assert str(snapshot(7, name="v1")) == "savepoint v1 (7)"


def test_a_request_has_bytes_of_its_own() -> None:
    def ask() -> Request:
        return Request(
            id=records.RequestId("a"), kind=records.RequestKind.STOP, generation=1, deadline_ms=1, by="", at_ms=1
        )

    assert ask().nonce != ask().nonce
