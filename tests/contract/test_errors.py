"""Every error says what, which and what next, ends the CLI with its own code, and travels between processes."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from headgate_contract import errors
from headgate_contract.errors import HeadgateError

TREE = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, HeadgateError)]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn: list[tuple[int, str, str | None]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"([│├└─ ]*)(\w+)(?: \((\d+)\))?", line)
        if match and match[2] in {cls.__name__ for cls in TREE}:
            drawn.append((len(match[1]) // 4, match[2], match[3]))
    assert {name for _, name, _ in drawn} == {cls.__name__ for cls in TREE}
    above: list[str] = []
    for depth, name, code in drawn:
        cls = getattr(errors, name)
        assert depth == 0 or cls.__base__.__name__ == above[depth - 1], name
        assert code is None or cls.exit_code == int(code), name
        above[depth:] = [name]


@pytest.mark.parametrize("cls", TREE)
def test_every_error_is_shown_with_its_way_out_and_can_be_sent(cls: type[HeadgateError]) -> None:
    error = cls("slot 7 is missing", hint="put it back")
    assert str(error) == "slot 7 is missing; put it back"
    assert str(cls("slot 7 is missing")) == "slot 7 is missing"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (again.what, again.hint, str(again)) == (error.what, error.hint, str(error))
    assert cls.__doc__


def test_an_error_with_a_signature_of_its_own_travels_too() -> None:
    again = pickle.loads(pickle.dumps(_Special(7)))
    assert isinstance(again, _Special)
    assert str(again) == "special 7; do this"


class _Special(errors.StateError):
    def __init__(self, number: int) -> None:
        super().__init__(f"special {number}", hint="do this")


def test_exit_codes_are_told_apart() -> None:
    assert {cls.exit_code for cls in TREE} == {*range(1, 10), 11}
