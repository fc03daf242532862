"""`DeltaTable` and its builders: delta-spark's API, which makes statements for a session."""

from __future__ import annotations

from txlake.lake.tables.branch import TableBranch
from txlake.lake.tables.builder import DeltaTableBuilder, IdentityGenerator
from txlake.lake.tables.merge import DeltaMergeBuilder
from txlake.lake.tables.optimize import DeltaOptimizeBuilder
from txlake.lake.tables.table import DeltaTable

__all__ = [
    "DeltaTable",
    "DeltaMergeBuilder",
    "DeltaTableBuilder",
    "DeltaOptimizeBuilder",
    "IdentityGenerator",
    "TableBranch",
]
