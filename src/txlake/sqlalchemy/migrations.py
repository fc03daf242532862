"""Alembic's operations on a lake, which run in one transaction."""

from __future__ import annotations

from alembic.ddl.impl import DefaultImpl


class TxlakeImpl(DefaultImpl):
    """Alembic finds it by its dialect's name, once the dialect is imported."""

    __dialect__ = "txlake"
    transactional_ddl = True
