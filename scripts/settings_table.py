"""Prints the table of all settings that docs/operations.md holds; with --write, puts it there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "plugins"))

from headgate_contract.durations import Duration  # noqa: E402
from headgate_contract.errors import BadConfiguration  # noqa: E402
from headgate_contract.options import OPTIONS, Option  # noqa: E402

PAGE = REPOSITORY / "docs" / "operations.md"
BEGIN = "<!-- settings: made by scripts/settings_table.py --write -->"
END = "<!-- settings: end -->"
_NEVER_RIGHT = "-9999999999"
_NO_LIMIT = 2**31 - 1


def table() -> str:
    """The table, as it stands between the two marks."""
    rows = [f"| {_name(option)} | {_default(option)} | {_allowed(option)} | {option.about} |" for option in OPTIONS]
    return "\n".join(["| Setting | Default | Allowed | What it is |", "| --- | --- | --- | --- |", *rows]) + "\n"


def table_in(page: str) -> str:
    """What stands between the marks of `page`."""
    return page.partition(BEGIN + "\n")[2].partition(END)[0]


def _name(option: Option) -> str:
    older = "".join(f"<br>also `{name}`" for name in option.deprecated)
    return f"`{option.key}`{older}"


def _default(option: Option) -> str:
    value = option.default
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and not isinstance(value, Duration) and value == _NO_LIMIT:
        return "no limit"
    if _allowed(option) == "a size":
        return f"{value >> 20} mb"
    return str(value)


def _allowed(option: Option) -> str:
    """What a value may be, in the words with which a wrong one is refused."""
    try:
        option.parse(_NEVER_RIGHT, option.key)
    except BadConfiguration as error:
        kinds = {"a duration": "a duration", "a size": "a size", "field": "a cron expression"}
        for said, kind in kinds.items():
            if said in error.what:
                return kind
        if "neither true nor false" in error.what:
            return "true, false"
        allowed = error.hint.removeprefix("allowed are ").removeprefix("it is between ").replace(" and ", " to ")
        return allowed.replace(f" to {_NO_LIMIT}", " or more")
    return "a text"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.relative_to(REPOSITORY)}")
    if parser.parse_args().write:
        page = PAGE.read_text()
        if BEGIN not in page or END not in page:
            print(f"{PAGE} lacks the marks {BEGIN} and {END}", file=sys.stderr)
            return 1
        before, begin, rest = page.partition(BEGIN + "\n")
        PAGE.write_text(before + begin + table() + END + rest.partition(END)[2])
    else:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
