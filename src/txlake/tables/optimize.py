"""`DeltaOptimizeBuilder`: which partitions to rewrite, and how."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from txlake.statements import Optimize
from txlake.tables.arguments import string, strings
from txlake.tables.errors import as_delta_spark
from txlake.tables.executor import Executor
from txlake.tables.expressions import condition_of


class DeltaOptimizeBuilder:
    """OPTIMIZE of one table; `DeltaTable.optimize` makes it.

    Both executions return the metrics, one row of (path, metrics).
    """

    def __init__(self, executor: Executor, statement: Optimize) -> None:
        self._executor = executor
        self._statement = statement

    @as_delta_spark
    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only the partitions that match; the filter may name partition columns alone.

        Raises a TypeError for what is no text, a ParseException for an empty text or one that ends
        within a quotation.
        """
        text = string(partitionFilter, "Partition filter")
        self._statement = replace(self._statement, where=condition_of(text, ()))
        return self

    @as_delta_spark
    def executeCompaction(self) -> DataFrame:
        """Joins small files.

        Raises an AnalysisException for a filter that is no condition, or on other columns than
        those of partitions, an UnsupportedOperationException for a table that txlake doesn't write,
        a Conflict when a concurrent commit stands in the way.
        """
        return self._executor.execute(self._statement)

    @as_delta_spark
    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Rewrites the files along a Z-order curve over these columns.

        Raises an AnalysisException for columns that aren't there or partition the table, a
        TypeError for what is no text, and as `executeCompaction`.
        """
        columns = strings(cols, "Z-order column")
        return self._executor.execute(replace(self._statement, zorder_by=columns))
