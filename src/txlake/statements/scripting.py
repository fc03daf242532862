"""What BEGIN ATOMIC ... END may hold besides statements: variables, conditions, loops, handlers.

Source: Databricks' and Spark's documents of SQL scripting, after the SQL standard's part 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

from txlake.statements.expressions import SqlText

if TYPE_CHECKING:
    from txlake.statements import Statement

    Step: TypeAlias = (
        "Statement | DeclareVariable | SetVariables | Choice | Loop | ForEach | Jump | Signal"
        " | Block"
    )

if TYPE_CHECKING:
    pass


def steps_of(part: object) -> Iterator[object]:
    """Every step in a block, in those in it, and so on; branches and handlers beside them."""
    if isinstance(part, tuple):
        for one in part:
            yield one
            yield from steps_of(one)
    elif isinstance(part, Choice | Branch | Loop | ForEach | Handler | Block):
        for item in fields(part):
            value = getattr(part, item.name)
            if isinstance(value, tuple):
                yield from steps_of(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareVariable:
    """DECLARE name, ... [type] [DEFAULT value]; it lives to the end of its block."""

    names: tuple[str, ...]
    data_type: str | None = None
    default: SqlText | None = None


@dataclass(frozen=True, slots=True)
class SetVariables:
    """SET name = value, or SET (names) = (query) whose one row has their values."""

    names: tuple[str, ...]
    value: SqlText


@dataclass(frozen=True, slots=True)
class Branch:
    """The steps of an IF's or a CASE's branch, taken when its condition is true."""

    condition: SqlText
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """IF and CASE; `otherwise` is None for a CASE without ELSE, which must find a branch."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Step, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """WHILE (`before`), REPEAT (`until`) and LOOP."""

    steps: tuple[Step, ...]
    label: str | None = None
    before: SqlText | None = None
    until: SqlText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """FOR [variable AS] query DO: the row's columns are variables, and fields of the variable."""

    query: SqlText
    steps: tuple[Step, ...]
    variable: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Jump:
    """LEAVE label, ITERATE label."""

    kind: Literal["LEAVE", "ITERATE"]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """SIGNAL SQLSTATE '...' [SET MESSAGE_TEXT = text]; RESIGNAL where `state` is None."""

    state: str | None
    condition: str | None = None
    message: SqlText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """DECLARE { EXIT | CONTINUE } HANDLER FOR conditions: what is done when a step fails.

    Attributes:
        states: SQLSTATEs, `SQLEXCEPTION` for every error, `NOT FOUND` for those of class 02.
    """

    exits: bool
    states: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """BEGIN ... END inside of another: a scope of variables and handlers."""

    steps: tuple[Step, ...]
    handlers: tuple[Handler, ...] = ()
    label: str | None = None
