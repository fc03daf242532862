"""Views: queries that have a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Makes the relation."""
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
