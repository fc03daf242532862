"""Numbers, heads and ratified commits; sessions, transactions and locks; the conflict journal.

Tables that had only a name get a number and no head: the lake attaches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the relations, and the two old ones anew with what they held."""
    # Older releases refuse the catalog by this number.
    op.execute("UPDATE txlake_schema SET version = 3")
    databases = _rows("txlake_databases")
    tables = _rows("txlake_tables")
    op.drop_table("txlake_tables")
    op.drop_table("txlake_databases")
    _make_lake(numbered=len(databases) + len(tables))
    _make_names(databases, tables)
    _make_commits()
    _make_owners()


def _rows(name: str) -> Sequence[Mapping[str, Any]]:
    """A relation's rows as they are, the oldest first."""
    found = op.get_bind().execute(sa.text(f"SELECT * FROM {name} ORDER BY created_ms, id"))
    return [dict(row) for row in found.mappings()]


def _make_lake(numbered: int) -> None:
    op.create_table(
        "txlake_facts",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    counters = op.create_table(
        "txlake_counters",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    given = {"sequence": 0, "object": numbered, "session": 0, "transaction": 0, "lock": 0}
    op.bulk_insert(counters, [{"name": name, "value": value} for name, value in given.items()])


def _make_names(
    old_databases: Sequence[Mapping[str, Any]], old_tables: Sequence[Mapping[str, Any]]
) -> None:
    databases = op.create_table(
        "txlake_databases",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
        sa.Column("folded_name", sa.String(255), nullable=False, unique=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("isolation", sa.String(32)),
        sa.Column("properties", sa.Text),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    tables = op.create_table(
        "txlake_tables",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
        sa.Column("database_id", sa.String(36), sa.ForeignKey("txlake_databases.id")),
        sa.Column("folded_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("managed", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("modified_ms", sa.BigInteger, nullable=False),
        sa.Column("head", sa.BigInteger),
        sa.Column("published", sa.BigInteger, nullable=False, server_default=sa.text("-1")),
        sa.Column("dropped_sequence", sa.BigInteger),
    )
    op.create_index(
        "txlake_tables_name",
        "txlake_tables",
        ["database_id", "folded_name"],
        unique=True,
        sqlite_where=sa.text("dropped_sequence IS NULL"),
        postgresql_where=sa.text("dropped_sequence IS NULL"),
    )
    numbers: Iterator[int] = iter(range(1, 1 + len(old_databases) + len(old_tables)))
    op.bulk_insert(databases, [{**row, "number": next(numbers)} for row in old_databases])
    op.bulk_insert(
        tables,
        [
            {**row, "managed": bool(row["managed"]), "number": next(numbers)}
            | {"modified_ms": row["created_ms"]}
            for row in old_tables
        ],
    )


def _make_commits() -> None:
    op.create_table(
        "txlake_commits",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False, index=True),
        sa.Column("transaction_id", sa.String(36), nullable=False, index=True),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.String(64)),
        sa.Column("content", sa.LargeBinary),
        sa.Column("staged", sa.Text),
    )
    op.create_table(
        "txlake_bare_ratifications",
        sa.Column("transaction_id", sa.String(36), primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
    )


def _make_owners() -> None:
    op.create_table(
        "txlake_sessions",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger, nullable=False),
        sa.Column("user_name", sa.String(255)),
        sa.Column("begin_ms", sa.BigInteger, nullable=False),
        sa.Column("lease_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "txlake_transactions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
        sa.Column("session_id", sa.BigInteger, sa.ForeignKey("txlake_sessions.id"), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("begin_ms", sa.BigInteger, nullable=False),
        sa.Column("isolation", sa.String(32)),
        sa.Column("read_only", sa.Boolean, nullable=False),
        sa.Column("explicit", sa.Boolean, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("sequence", sa.BigInteger),
    )
    op.create_table(
        "txlake_locks",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("session_id", sa.BigInteger, sa.ForeignKey("txlake_sessions.id"), nullable=False),
        sa.Column("transaction_id", sa.String(36), index=True),
        sa.Column("resource_type", sa.String(16), nullable=False),
        sa.Column("resource_subtype", sa.String(16), nullable=False),
        sa.Column("database_number", sa.BigInteger, nullable=False),
        sa.Column("entity", sa.BigInteger, nullable=False),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("asked_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("txlake_locks_resource", "txlake_locks", ["resource_type", "entity"])
    op.create_table(
        "txlake_conflicts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("transaction_id", sa.String(36), nullable=False),
        sa.Column("transaction_number", sa.BigInteger),
        sa.Column("begin_ms", sa.BigInteger),
        sa.Column("session_id", sa.BigInteger),
        sa.Column("process", sa.BigInteger),
        sa.Column("error", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("evidence", sa.Text),
    )
