"""Dropped tables that are kept for a while: since when, until when, and of which database.

What an older release dropped is kept no longer: its folder is removed, as it was meant to be.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Adds the columns."""
    told = sa.Column("is_told", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("txlake_tables", sa.Column("dropped_ms", sa.BigInteger))
    op.add_column("txlake_tables", sa.Column("kept_until_ms", sa.BigInteger))
    op.add_column("txlake_tables", sa.Column("dropped_from", sa.String(255)))
    op.add_column("txlake_tables", told)
