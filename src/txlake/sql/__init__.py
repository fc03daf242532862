"""The SQL parser: from text to statements, with errors that point at their position."""

from __future__ import annotations

from txlake.sql.clauses import as_query
from txlake.sql.constants import constant_text
from txlake.sql.markers import has_named_markers, is_literal, sql_literal
from txlake.sql.parser import is_complete, parse
from txlake.sql.scripts import ScriptStatement, parse_script

__all__ = [
    "ScriptStatement",
    "as_query",
    "constant_text",
    "has_named_markers",
    "is_complete",
    "is_literal",
    "parse",
    "parse_script",
    "sql_literal",
]
