"""Steps of BEGIN ATOMIC ... END besides statements: variables, conditions, loops, handlers.

Source: Databricks' and Spark's documentation of SQL scripting, after part 4 of the SQL standard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

from txlake.sql.statements.expressions import SqlText

if TYPE_CHECKING:
    from txlake.sql.statements import Statement

    Step: TypeAlias = (
        "Statement | DeclareVariable | SetVariables | Conditional | Loop | ForEach | Jump | Signal"
        " | Block"
    )


def steps_of(part: object) -> Iterator[object]:
    """Yield the steps, branches and handlers of a block, each before those inside it."""
    if isinstance(part, tuple):
        for step in part:
            yield step
            yield from steps_of(step)
    elif isinstance(part, Conditional | Branch | Loop | ForEach | Handler | Block):
        for item in fields(part):
            value = getattr(part, item.name)
            if isinstance(value, tuple):
                yield from steps_of(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareVariable:
    """DECLARE name, ... [type] [DEFAULT value]; the scope is the block."""

    names: tuple[str, ...]
    data_type: str | None = None
    default: SqlText | None = None


@dataclass(frozen=True, slots=True)
class SetVariables:
    """SET name = value, or SET (names) = (query) whose one row has the values."""

    names: tuple[str, ...]
    value: SqlText


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of an IF or a CASE: the steps to run when the condition is true."""

    condition: SqlText
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """IF and CASE; `else_steps` is None for a CASE without ELSE, which must find a branch."""

    branches: tuple[Branch, ...]
    else_steps: tuple[Step, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """WHILE (`while_condition`), REPEAT (`until_condition`) and LOOP."""

    steps: tuple[Step, ...]
    label: str | None = None
    while_condition: SqlText | None = None
    until_condition: SqlText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """FOR [variable AS] query DO: each row's columns are variables, and fields of `variable`."""

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
    """DECLARE { EXIT | CONTINUE } HANDLER FOR conditions: the steps to run when a step fails.

    Attributes:
        states: SQLSTATEs, `SQLEXCEPTION` for every error, `NOT FOUND` for the states of class 02.
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
