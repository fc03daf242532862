"""SQL text becomes statements; what isn't understood is an error that points at its place."""

from __future__ import annotations

from txlake.sql.markers import sql_literal
from txlake.sql.parser import parse

__all__ = ["parse", "sql_literal"]
