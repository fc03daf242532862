"""The record of maintenance."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the relation."""
    op.create_table(
        "txlake_maintenance",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("table_name", sa.Text),
        sa.Column("need", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.Column("duration_ms", sa.BigInteger),
        sa.Column("session_id", sa.BigInteger),
        sa.Column("error", sa.Text),
    )
