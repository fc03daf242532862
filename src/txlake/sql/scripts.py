"""A script: the statements of a text with their own texts and lines, to run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txlake.sql.markers import bind
from txlake.sql.parser import placed_statements
from txlake.sql.rewriting import with_names
from txlake.statements import Statement


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a script; `line` counts from 1, `text` is without its `;` and markers."""

    text: str
    line: int
    statement: Statement


def script(text: str, args: Mapping[str, object] | None = None) -> tuple[Piece, ...]:
    """The statements of a script; none for a text without any. `args` as for `parse`.

    Raises InvalidRequest that points at what isn't understood, as `parse` does.
    """
    source = with_names(bind(text, args))
    return tuple(
        Piece(
            source.text[start:end],
            text.count("\n", 0, source.original_position(start)) + 1,
            statement,
        )
        for statement, start, end in placed_statements(source)
    )
