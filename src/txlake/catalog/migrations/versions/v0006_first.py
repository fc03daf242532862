"""The schema of the first release: names, ratified commits, owners, locks, views, conflicts.

It keeps the number 0006, which catalogs from before the first release have.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = None


def upgrade() -> None:
    """Create the relations."""
    _make_lake()
    _make_names()
    _make_commits()
    _make_owners()
    _make_conflicts()


def _make_lake() -> None:
    """Create the relations of facts and counters, with their first rows."""
    # By this number, versions of txlake from before Alembic refuse the catalog.
    schema = op.create_table("txlake_schema", sa.Column("version", sa.Integer, nullable=False))
    op.bulk_insert(schema, [{"version": 3}])
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
    given = ("sequence", "object", "session", "transaction", "lock")
    op.bulk_insert(counters, [{"name": name, "value": 0} for name in given])


def _make_names() -> None:
    """Create the relations of databases, tables and views."""
    op.create_table(
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
    op.create_table(
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
        sa.Column("dropped_ms", sa.BigInteger),
        sa.Column("kept_until_ms", sa.BigInteger),
        sa.Column("dropped_from", sa.String(255)),
        sa.Column("is_told", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "txlake_tables_name",
        "txlake_tables",
        ["database_id", "folded_name"],
        unique=True,
        sqlite_where=sa.text("dropped_sequence IS NULL"),
        postgresql_where=sa.text("dropped_sequence IS NULL"),
    )
    op.create_table(
        "txlake_views",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
        sa.Column(
            "database_id", sa.String(36), sa.ForeignKey("txlake_databases.id"), nullable=False
        ),
        sa.Column("folded_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("properties", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("modified_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("database_id", "folded_name"),
    )


def _make_commits() -> None:
    """Create the relations of ratified commits and of ratifications without commits."""
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
    """Create the relations of sessions, transactions and locks."""
    op.create_table(
        "txlake_sessions",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger, nullable=False),
        sa.Column("user_name", sa.String(255)),
        sa.Column("begin_ms", sa.BigInteger, nullable=False),
        sa.Column("lease_ms", sa.BigInteger, nullable=False),
        sa.Column("length_ms", sa.BigInteger, nullable=False, server_default="30000"),
        sa.Column("warned", sa.Boolean, nullable=False, server_default=sa.false()),
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
        sa.Column("begin_sequence", sa.BigInteger, nullable=False, server_default="0"),
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


def _make_conflicts() -> None:
    """Create the relation of conflicts."""
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
