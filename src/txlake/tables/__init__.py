"""`DeltaTable` and its builders: delta-spark's API, which makes statements for a session."""

from __future__ import annotations

from txlake.tables.builder import DeltaTableBuilder, IdentityGenerator
from txlake.tables.merge import DeltaMergeBuilder
from txlake.tables.optimize import DeltaOptimizeBuilder
from txlake.tables.table import DeltaTable

__all__ = [
    "DeltaTable",
    "DeltaMergeBuilder",
    "DeltaTableBuilder",
    "DeltaOptimizeBuilder",
    "IdentityGenerator",
]
