"""Scripts: a text's statements, each with its own text and line, to run in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txlake.sql.markers import bind
from txlake.sql.parser import statements_with_positions
from txlake.sql.rewriting import resolve_identifiers
from txlake.sql.statements import Statement


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """A statement of a script; `line` counts from 1, `text` has no `;` and no markers."""

    text: str
    line: int
    statement: Statement


def parse_script(
    text: str, args: Mapping[str, object] | None = None
) -> tuple[ScriptStatement, ...]:
    """Parse the statements of a script. An empty text has none. `args` as for `parse`.

    Raises InvalidRequest as `parse`.
    """
    source = resolve_identifiers(bind(text, args))
    return tuple(
        ScriptStatement(
            source.text[start:end],
            text.count("\n", 0, source.original_position(start)) + 1,
            statement,
        )
        for statement, start, end in statements_with_positions(source)
    )
