"""`DeltaOptimizeBuilder`: chooses the partitions to rewrite, and how."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from txlake.lake.tables.arguments import require_string, require_strings
from txlake.lake.tables.errors import raises_delta_spark_errors
from txlake.lake.tables.executor import Executor
from txlake.lake.tables.expressions import condition_of
from txlake.sql.statements import Optimize


class DeltaOptimizeBuilder:
    """OPTIMIZE of one table, made by `DeltaTable.optimize`.

    Both executions return the metrics, one row of (path, metrics).
    """

    def __init__(self, executor: Executor, statement: Optimize) -> None:
        self._executor = executor
        self._statement = statement

    @raises_delta_spark_errors
    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Restrict OPTIMIZE to matching partitions; the filter may name partition columns only.

        Changes this builder and returns it. Raises a TypeError for a filter that isn't text, a
        ParseException for an empty text or one that ends within a quotation.
        """
        text = require_string(partitionFilter, "Partition filter")
        self._statement = replace(self._statement, where=condition_of(text, ()))
        return self

    @raises_delta_spark_errors
    def executeCompaction(self) -> DataFrame:
        """Compact small files.

        Raises an AnalysisException for a filter that is no condition, or on columns that aren't
        partition columns, an UnsupportedOperationException for a table that txlake doesn't write, a
        Conflict with a concurrent commit.
        """
        return self._executor.execute(self._statement)

    @raises_delta_spark_errors
    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Rewrite the files along a Z-order curve over these columns.

        Raises an AnalysisException for columns that don't exist or partition the table, a TypeError
        for a name that isn't text, and as `executeCompaction`.
        """
        columns = require_strings(cols, "Z-order column")
        return self._executor.execute(replace(self._statement, zorder_by=columns))
