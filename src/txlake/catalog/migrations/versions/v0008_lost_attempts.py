"""How many attempts to commit open transactions have lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column."""
    op.add_column(
        "txlake_transactions",
        sa.Column("lost_attempts", sa.BigInteger, nullable=False, server_default="0"),
    )
