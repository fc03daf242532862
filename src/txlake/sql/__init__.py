"""SQL text becomes statements; what isn't understood is an error that points at its place."""

from __future__ import annotations

from txlake.sql.clauses import selected
from txlake.sql.constants import constant_text
from txlake.sql.markers import has_names, is_literal, sql_literal
from txlake.sql.parser import is_closed, parse
from txlake.sql.scripts import Piece, script

__all__ = [
    "Piece",
    "constant_text",
    "has_names",
    "is_closed",
    "is_literal",
    "parse",
    "script",
    "selected",
    "sql_literal",
]
