"""The data plane of plain Python rows, which stands in for Spark in the simulation.

A `RowEngine` is the engine with its own commands, logs and footprints; only rows are looked at by
Python instead of Spark. Its files are real Parquet with real statistics and deletion vectors, so
that any Delta reader reads them.
"""

from __future__ import annotations

from tests.simulation.rows.engine import RowEngine
from tests.simulation.rows.session import RowSession

__all__ = ["RowEngine", "RowSession"]
