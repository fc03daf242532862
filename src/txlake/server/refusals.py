"""The statements that callers may send who don't own the machine.

Owns the check of a script before it runs. A statement's command says whether it is served, and
whether to readers (`Command.is_served`, `Command.writes`). A query is checked again on its analysed
plan, before it runs (`txlake.spark.served`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from txlake.commands import COMMANDS
from txlake.commands.controls import CONTROLS
from txlake.session.command import Command, words_of
from txlake.session.session import Control
from txlake.session.versions_read import VersionRead
from txlake.sql.statements import SqlText, Statement, TableName, TablePath, TimeTravel
from txlake.sql.statements.calls import NO_PLACES, served_expression_problem, served_text_problem
from txlake.sql.statements.scripting import DeclareVariable, ForEach, SetVariables

_STATEMENTS: Mapping[type, Command | Control] = {**COMMANDS, **CONTROLS}
READ_STATEMENTS = frozenset(
    kind for kind, entry in _STATEMENTS.items() if entry.is_served and not entry.writes
)
"""The types of statements that a read-only token may run."""
WRITE_STATEMENTS = frozenset(
    kind for kind, entry in _STATEMENTS.items() if entry.is_served and entry.writes
)
"""The further types of statements that other tokens may run."""

# They set variables of Spark's session, which all callers share.
_SETTING_VARIABLES = frozenset({DeclareVariable, SetVariables, ForEach})
_PATH_CHARACTERS = re.compile(r"[/\\:]")


def refusal_reason(statements: Sequence[Statement | VersionRead]) -> str | None:
    """Return why a script is refused to every caller: the first part's reason; None if it is
    served. So for what a caller says to have read.
    """
    parts = (part for statement in statements for part in walk_parts(statement))
    reasons = map(_part_refusal_reason, parts)
    return next((reason for reason in reasons if reason is not None), None)


def is_write(part: object) -> bool:
    """Return whether a part of a script is a statement that a read-only token may not run.

    Also True for a statement that isn't served at all.
    """
    return type(part) in _STATEMENTS and type(part) not in READ_STATEMENTS


def _part_refusal_reason(part: object) -> str | None:
    """Return why a script with this part is refused; None for a part that is served."""
    kind = type(part)
    if kind in _SETTING_VARIABLES:
        return "variables aren't served: they are of Spark's session, which all callers share"
    if kind in _STATEMENTS and kind not in READ_STATEMENTS and kind not in WRITE_STATEMENTS:
        return (
            f"{words_of(part)} isn't served: it reaches beyond the lake's tables, or changes what "  # type: ignore[arg-type]
            "all callers share"
        )
    if isinstance(part, SqlText):
        return served_text_problem(part.text)
    if isinstance(part, TimeTravel) and part.timestamp_expression is not None:
        return served_expression_problem(part.timestamp_expression)
    is_place = isinstance(part, TablePath) or getattr(part, "location", None) is not None
    if is_place or (isinstance(part, TableName) and any(map(_PATH_CHARACTERS.search, part.parts))):
        return NO_PLACES
    return None


def walk_parts(part: object) -> Iterator[object]:
    """Yield a statement and all of its parts, nested ones included."""
    yield part
    if isinstance(part, Mapping):
        for value in part.values():
            yield from walk_parts(value)
    elif isinstance(part, tuple | list | frozenset):
        for value in part:
            yield from walk_parts(value)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from walk_parts(getattr(part, field.name))
