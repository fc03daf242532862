"""What every operation of the data plane works with: one table at one moment, and Spark.

Owns the pairing of a statement's expressions with Spark columns and with the predicates that
conflict checks and file skipping use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.commit.data_plane import Condition
from txlake.conflict.footprint import Read
from txlake.datafiles.write_task import COPY
from txlake.errors import InvalidRequest
from txlake.local.control_columns import ACTION, FILE, ROW
from txlake.local.table import LocalTable
from txlake.local.writing import WriteResult
from txlake.log.predicates import (
    Predicate,
    columns_of,
    is_deterministic,
    may_depend_on_zone,
    parse_predicate,
)
from txlake.log.time_zones import TimeZone
from txlake.protocol.types import Primitive
from txlake.spark.manifest import Manifests
from txlake.spark.scan import Scan, scan_frame
from txlake.spark.session_zones import session_zone
from txlake.spark.writing import write_frame
from txlake.sql.statements import Expression, NativeColumn, condition_text

_TEXT_MAX = 10_000
_CALL = re.compile(r"([^\s(),'\"`]+)\(")
_OPERATORS = frozenset(
    {
        *("=", "==", "<=>", "<", "<=", ">", ">=", "!=", "<>"),
        *("+", "-", "*", "/", "%", "&", "|", "^", "||", "!", "~"),
        *("and", "in", "like", "not", "or", "rlike"),
    }
)


def plain_column(expression: Expression) -> Column:
    """Return the Spark column of an expression that names no other table. Needs a started Spark."""
    if isinstance(expression, NativeColumn):
        assert isinstance(expression.column, Column)
        return expression.column
    return F.expr(expression.rewritten(lambda _: None))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess(LocalTable):
    """One table as a statement sees it, and the means to read and write its rows by Spark.

    Attributes:
        start: returns the Spark session; not called for work that needs no Spark.
        column_of: returns the Spark column of an expression; tables named in it are replaced by
            views.
    """

    start: Callable[[], SparkSession]
    manifests: Manifests
    column_of: Callable[[Expression], Column] = plain_column

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when there is none."""
        return self.start()

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
        where: Predicate | None = None,
        together: Collection[str] | None = None,
    ) -> DataFrame:
        """Return the live rows of these files, as `TableData.scan`; starts Spark.

        Rows for which `where`, a bound predicate, isn't true may be left out.
        """
        return scan_frame(
            self.spark,
            self.manifests,
            Scan(
                snapshot=self.snapshot,
                store=self.store,
                reach=self.reach,
                files=self.in_zone(files),
                settings=self.settings,
                storage_options=self.storage_options,
                positions=positions,
                row_ids=positions and self.tracks_rows,
                deleted=deleted or {},
                where=where,
                together=together,
            ),
        )

    def copied(self, files: pa.Table, deleted: Mapping[int, BitMap64]) -> WriteResult:
        """Write new files with the remaining rows of these; `deleted` as in `scan`.

        Runs a Spark job. Row ids are kept if the table tracks rows.
        """
        positions = self.tracks_rows or self.reports_origins
        rows = self.scan(files, positions=positions, deleted=deleted)
        if not self.reports_origins:
            rows = rows.drop(FILE, ROW)
        return write_frame(rows.withColumn(ACTION, F.lit(COPY).cast("int")), self.target())

    def scan_with_metadata(self, files: pa.Table) -> DataFrame:
        """Return the live rows of these files with Spark's column `_metadata`, which has row ids if
        the table tracks rows.
        """
        scan = Scan(
            snapshot=self.snapshot,
            store=self.store,
            reach=self.reach,
            files=self.in_zone(files),
            settings=self.settings,
            storage_options=self.storage_options,
            row_ids=self.tracks_rows,
            file_metadata=True,
        )
        return scan_frame(self.spark, self.manifests, scan)

    def qualified(self, frame: DataFrame, alias: str | None) -> DataFrame:
        """Return the frame under the alias, or the table's name; as it is without either."""
        name = alias or self.name
        return frame if name is None else frame.alias(name)

    @property
    def time_zone(self) -> TimeZone:
        return session_zone(self.spark)

    def read(self, expression: Expression | None, alias: str | None) -> Read:
        """Return the read of a DELETE or UPDATE; of every row without a condition.

        Raises InvalidRequest for an unknown column.
        """
        predicate = self.predicate(expression, alias)
        if expression is None or predicate is None:
            return Read(deletes_all=True)
        condition = self.row_condition(predicate, expression, alias)
        return Read(
            predicate=predicate,
            text=condition_text(expression),
            deletes_all=condition is not None,
            condition=condition,
        )

    def row_condition(
        self, predicate: Predicate, expression: Expression, alias: str | None
    ) -> Condition | None:
        """Return the condition for later probes of single rows; None unless it depends on the row
        alone.

        Has the session's time zone if the condition may depend on it.
        """
        is_of_the_row = self.by_row(predicate) or _is_of_the_row(expression)
        if not is_of_the_row:
            return None
        zone = self.time_zone.name if may_depend_on_zone(predicate) else None
        return Condition(expression, alias, zone)

    def by_row(self, predicate: Predicate) -> bool:
        """Return whether a predicate is deterministic and uses only columns of primitive types."""
        fields = (self.snapshot.schema.find(column[0]) for column in columns_of(predicate))
        return is_deterministic(predicate) and all(
            item is not None and isinstance(item.type, Primitive) for item in fields
        )


def _is_of_the_row(expression: Expression) -> bool:
    """Return whether a condition given as a Column certainly depends on the row alone.

    False for SQL text, and on Spark Connect, which doesn't show what a Column is made of.
    """
    column = getattr(getattr(expression, "column", None), "_jc", None)
    return column is not None and calls_are_of_the_row(column.node().sql())


def calls_are_of_the_row(text: str) -> bool:
    """Return whether the calls in Spark's text of a Column depend on the row alone.

    Operators, which the text writes as calls, are replaced by a function that SQL has and that
    depends on its arguments alone too: the answer stays the same. False for a text that can't be
    parsed, or of more than 10,000 characters.
    """
    if len(text) > _TEXT_MAX:
        return False
    try:
        return is_deterministic(parse_predicate(_CALL.sub(_sql_call, text)))
    except InvalidRequest:
        return False


def _sql_call(call: re.Match[str]) -> str:
    """Return a call of Spark's text as one that SQL has: `coalesce` for an operator, `rand` if
    unknown.
    """
    name = call[1]
    if name.lower() in _OPERATORS:
        return "coalesce("
    return call[0] if name.isidentifier() else "rand("  # a function of nobody knows what
