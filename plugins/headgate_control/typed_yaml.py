"""Reads YAML as it was typed, and knows the line of each key: nothing silently becomes something else."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from headgate_contract.errors import BadConfiguration

_VALUES = 100_000
"""Above what any file that a person writes has, its anchors followed."""
_DEEPEST = 50
"""What is nested deeper, nobody writes by hand; what walks through values may rely on it, and recurse."""
_PASSED_OVER = 500
"""Deeper than that, the text is read no further: each level takes longer than the one before."""
_TOO_DEEP = "nested too deeply"


@dataclass(frozen=True, slots=True)
class Misread:
    """What YAML would make of a text is not what was typed."""

    why: str


def compose(text: str) -> yaml.Node | None:
    """What the text says, nothing of it made into values yet. Raises YAMLError."""
    loader = _AsTyped(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError) as error:  # an escape of a character that there is not
        raise yaml.YAMLError(f"something in it cannot be meant ({error})") from None
    finally:
        loader.dispose()


def value_of(node: yaml.Node | None) -> Any:
    """The value of a node. Raises YAMLError, also where anchors refer to each other in a loop."""
    if node is None:
        return None
    _check_ends(node)
    loader = _AsTyped("")
    try:
        return loader.construct_object(node, deep=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A day that no calendar has; a tag (!!int) on what is none, for which each of YAML's readers has its own error.
        raise _refused(node, f"a value cannot be meant ({error}): put it in quotes") from None
    finally:
        loader.dispose()


def pairs_of(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    """The keys and values of a mapping as they are written; none of anything else."""
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def line_of(error: yaml.YAMLError) -> int | None:
    """The line that a YAML error is about."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return mark.line + 1 if mark is not None else None


def what_of(error: yaml.YAMLError) -> str:
    """What a YAML error says, without the place, in one line."""
    said = [getattr(error, part, None) for part in ("context", "problem", "note")]
    return ", ".join(" ".join(str(part).split()) for part in said if part) or " ".join(str(error).split())


def lines_of(node: yaml.Node, prefix: str = "") -> dict[str, int]:
    """The line of each key below `node`; keys within keys have dots between them, as settings have."""
    found: dict[str, int] = {}
    for key, value in pairs_of(node):
        if isinstance(key, yaml.ScalarNode):
            found.setdefault(f"{prefix}{key.value}", key.start_mark.line + 1)
            found |= lines_of(value, f"{prefix}{key.value}.")
    return found


def flat(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested mappings as dotted keys."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def check_value(key: str, value: object) -> None:
    """Raise BadConfiguration for what is no value of a setting."""
    if isinstance(value, Misread):
        raise BadConfiguration(f"{key}: {value.why}")
    if value is None or isinstance(value, list):
        raise BadConfiguration(f"{key} has {'no value' if value is None else 'a list as its value'}")


def _check_ends(top: yaml.Node) -> None:
    """Raise ConstructorError if a node is within itself, or if following all anchors would not come to an end soon."""
    left = _VALUES
    above: list[yaml.Node] = []

    def follow(node: yaml.Node) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _refused(top, f"its anchors make more than {_VALUES} values of it")
        if any(one is node for one in above):
            raise _refused(node, "an anchor refers to itself, in a loop")
        if len(above) > _DEEPEST or node.tag == _TOO_DEEP:
            raise _refused(node, "it is nested too deeply")
        above.append(node)
        for pair in node.value if isinstance(node, yaml.CollectionNode) else ():
            for child in pair if isinstance(pair, tuple) else (pair,):
                follow(child)
        above.pop()

    follow(top)


def _refused(node: yaml.Node, why: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, why, node.start_mark)


class _AsTyped(yaml.SafeLoader):
    """YAML's safe loader, which refuses what would silently be something else than was typed.

    That is a key that is there twice, and a number that YAML reads to another base (1:30 as 90, 010 as 8). What is
    nested too deeply is not composed, but noted in its place: what stands around it can be read all the same.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > _DEEPEST and not self.check_event(yaml.AliasEvent):
            return self._passed_over()
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _passed_over(self) -> yaml.Node:
        event = self.get_event()  # type: ignore[no-untyped-call]
        found = yaml.ScalarNode(_TOO_DEEP, "", event.start_mark, event.end_mark)
        opened = int(isinstance(event, yaml.CollectionStartEvent))
        while opened:
            event = self.get_event()  # type: ignore[no-untyped-call]
            opened += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if opened > _PASSED_OVER:
                raise _refused(found, "it is nested too deeply")
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # what is merged is outweighed by what is written here
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _refused(key_node, f"{key!r} is no key")
            if key in seen:
                raise _refused(key_node, f"the key {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float | Misread:
        """An integer or a float, as they are written every day."""
        text = str(self.construct_scalar(node))
        if ":" in text or re.fullmatch(r"[-+]?0[0-9_]+", text):
            return Misread(f"YAML reads {text} to another base than ten: put it in quotes")
        whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _tag in ("int", "float"):
    _AsTyped.add_constructor(f"tag:yaml.org,2002:{_tag}", _AsTyped.construct_number)
