"""Databases and tables by name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the first relations."""
    schema = op.create_table("txlake_schema", sa.Column("version", sa.Integer, nullable=False))
    op.bulk_insert(schema, [{"version": 1}])
    op.create_table(
        "txlake_databases",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("folded_name", sa.String(255), nullable=False, unique=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("isolation", sa.String(32)),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "txlake_tables",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column(
            "database_id", sa.String(36), sa.ForeignKey("txlake_databases.id"), nullable=False
        ),
        sa.Column("folded_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("managed", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("database_id", "folded_name"),
    )
