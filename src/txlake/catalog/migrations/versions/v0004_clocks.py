"""Leases that outlive steps of a clock, and since when an open transaction may read.

A session says how long its leases are, and whether it was given a last one. What an older release
leaves open is taken to have its default length, and to read from the beginning.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the columns."""
    length = sa.Column("length_ms", sa.BigInteger, nullable=False, server_default="30000")
    warned = sa.Column("warned", sa.Boolean, nullable=False, server_default=sa.false())
    begin = sa.Column("begin_sequence", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("txlake_sessions", length)
    op.add_column("txlake_sessions", warned)
    op.add_column("txlake_transactions", begin)
