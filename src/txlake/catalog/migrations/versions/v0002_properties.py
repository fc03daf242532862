"""A database's properties."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("txlake_databases", sa.Column("properties", sa.Text))
    op.execute("UPDATE txlake_schema SET version = 2")
