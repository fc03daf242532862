"""DESCRIBE of a table: a statement, or a relation in a query's FROM clause."""

from __future__ import annotations

from dataclasses import dataclass

from txlake.sql.statements.names import Table


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """DESCRIBE HISTORY t [LIMIT n], newest first."""

    table: Table
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeDetail:
    """DESCRIBE DETAIL t."""

    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTable:
    """DESCRIBE [TABLE] [EXTENDED] t [column]."""

    table: Table
    extended: bool = False
    column: tuple[str, ...] | None = None


Description = DescribeHistory | DescribeDetail | DescribeTable
"""The statements that a query may read FROM, in parentheses."""
