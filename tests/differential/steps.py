"""The steps of a program: statements as values, the same for both engines.

In a text `{t}` and `{u}` stand for the engine's own tables, and `{v3}` for the version after step
3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Pairs: TypeAlias = tuple[tuple[str, str], ...]
_VERSION = re.compile(r"\{v(\d+)\}")


@dataclass(frozen=True, slots=True)
class FrameWrite:
    """A write of a DataFrame; the step's text is its query."""

    mode: Literal["append", "overwrite", "error", "ignore"]
    table: str = "{t}"
    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    replace_using: tuple[str, ...] | None = None
    is_schema_merged: bool = False
    is_schema_replaced: bool = False
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class ApiDelete:
    """`DeltaTable.delete`."""

    condition: str | None


@dataclass(frozen=True, slots=True)
class ApiUpdate:
    """`DeltaTable.update`."""

    condition: str | None
    values: Pairs


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN of a merge; `values`: None for all columns."""

    when: Literal["Matched", "NotMatched", "NotMatchedBySource"]
    action: Literal["update", "insert", "delete"]
    condition: str | None = None
    values: Pairs | None = None


@dataclass(frozen=True, slots=True)
class ApiMerge:
    """`DeltaTable.merge` of the table as t; the source s is the query in the step's text."""

    condition: str
    clauses: tuple[Clause, ...]
    is_schema_evolved: bool = False


Call: TypeAlias = FrameWrite | ApiDelete | ApiUpdate | ApiMerge


@dataclass(frozen=True, slots=True)
class Step:
    """One statement.

    Attributes:
        number: its place in the whole program, also after other steps were left out.
        kind: the kind of statement, in a word.
        text: SQL; for a call, the query with its rows.
        call: the call, if the step isn't SQL.
        settings: Spark's settings for this step.
    """

    number: int
    kind: str
    text: str
    call: Call | None = None
    settings: Pairs = field(default=())

    def __str__(self) -> str:
        settings = "".join(f" [{key}={value}]" for key, value in self.settings)
        call = "" if self.call is None else f" {self.call}"
        return f"{self.number}. {self.text}{call}{settings}"


def fill_placeholders(text: str, places: Mapping[str, str], versions: Mapping[int, int]) -> str:
    """Return the text for one engine.

    Args:
        places: the folders of its tables, by their letters.
        versions: its first table's version after each step; a step that was left out has the
            version
            of the step before.
    """

    def version(found: re.Match[str]) -> str:
        before = [number for number in versions if number <= int(found[1])]
        return str(versions[max(before)] if before else 0)

    text = _VERSION.sub(version, text)
    for letter, folder in places.items():
        text = text.replace(f"{{{letter}}}", f"delta.`{folder}`")
    return text
