"""Which heartbeat object of a catalog in a store shows that a session's process lives."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column."""
    op.add_column("txlake_sessions", sa.Column("holder", sa.String(36)))
