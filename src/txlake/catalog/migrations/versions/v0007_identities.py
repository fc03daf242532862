"""The marks up to which values of identity columns are reserved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the relation."""
    op.create_table(
        "txlake_identities",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("column_digest", sa.String(64), primary_key=True),
        sa.Column("mark", sa.BigInteger, nullable=False),
    )
