"""Branches of the lake, and what belongs to which of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the relation of branches; what is there belongs to main."""
    op.create_table(
        "txlake_branches",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
        sa.Column("folded_name", sa.String(255), nullable=False, unique=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("fork_sequence", sa.BigInteger, nullable=False),
        sa.Column("user_name", sa.String(255)),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("kept_until_ms", sa.BigInteger),
        sa.Column("is_tag", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "txlake_branch_reads",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("level", sa.String(32), nullable=False),
    )
    for relation in ("txlake_databases", "txlake_tables"):
        op.add_column(
            relation, sa.Column("branch", sa.BigInteger, nullable=False, server_default="0")
        )
    op.add_column("txlake_tables", sa.Column("origin_id", sa.String(36)))
    op.add_column("txlake_tables", sa.Column("root_id", sa.String(36)))
    op.add_column("txlake_tables", sa.Column("chain", sa.Text))
