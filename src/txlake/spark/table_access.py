"""What every operation of the data plane works with: one table at one moment, and Spark.

Owns the pairing of a statement's expressions with Spark columns and with the predicates that
conflict checks and file skipping use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.datafiles.restating import footer_of
from txlake.datafiles.vectors import Elsewhere
from txlake.errors import InvalidRequest
from txlake.log.predicates import (
    Opaque,
    Predicate,
    bind,
    columns_of,
    is_deterministic,
    parse_predicate,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import Store, System
from txlake.protocol.actions import Action, Add
from txlake.protocol.reach import Reach, nowhere
from txlake.protocol.types import Primitive
from txlake.settings import Settings
from txlake.spark.manifest import Manifests
from txlake.spark.scan import Scan, scan_frame
from txlake.spark.writing import Target
from txlake.statements import Expression, NativeColumn, SqlText
from txlake.transaction.change import Read

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
    """The Spark column of an expression that names no other table."""
    if isinstance(expression, NativeColumn):
        assert isinstance(expression.column, Column)
        return expression.column
    return F.expr(expression.rewritten(lambda _: None))


@dataclass(frozen=True, slots=True)
class Condition:
    """A statement's condition on a table's rows, and the alias by which it names the table.

    Attributes:
        zone: the time zone in which it was evaluated.
    """

    expression: Expression
    alias: str | None
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess:
    """One table as a statement sees it, and the means to read and write its rows.

    Attributes:
        start: gives the Spark session; not called for work that needs no Spark.
        allowed: gives the folders, beside the table's own, in which its files may lie.
        column_of: the Spark column of an expression; tables named in it are replaced by views.
        name: what qualifies the table's columns when the statement gives no alias.
    """

    start: Callable[[], SparkSession]
    manifests: Manifests
    system: System
    settings: Settings
    snapshot: Snapshot
    store: Store
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed: Callable[[], Iterable[str]] = nowhere
    column_of: Callable[[Expression], Column] = plain_column
    name: str | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when there is none."""
        return self.start()

    @property
    def reach(self) -> Reach:
        """Where the table's files may lie."""
        return Reach(self.store.url, self.allowed)

    def footer_of(self, add: Add) -> pq.FileMetaData:
        """The footer of a file of the table. Raises what `restating.footer_of` raises."""
        return footer_of(self.snapshot, add, self.store, self.reach, self.storage_options)

    @property
    def elsewhere(self) -> Elsewhere:
        """How deletion vectors are read that lie outside of the table's folder."""
        return Elsewhere.by_options(self.reach, self.storage_options)

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
        where: Predicate | None = None,
    ) -> DataFrame:
        """The rows of these files; with positions also row ids where the table tracks rows.

        Rows of which `where` isn't true may be left out.
        """
        return scan_frame(
            self.spark,
            self.manifests,
            Scan(
                snapshot=self.snapshot,
                store=self.store,
                reach=self.reach,
                files=files,
                settings=self.settings,
                storage_options=self.storage_options,
                positions=positions,
                row_ids=positions and self.tracks_rows,
                deleted=deleted or {},
                where=where,
            ),
        )

    def scan_telling_files(self, files: pa.Table) -> DataFrame:
        """The rows of these files with the column `_metadata`, what Spark tells of their files."""
        scan = Scan(
            snapshot=self.snapshot,
            store=self.store,
            reach=self.reach,
            files=files,
            settings=self.settings,
            storage_options=self.storage_options,
            file_metadata=True,
        )
        return scan_frame(self.spark, self.manifests, scan)

    @property
    def tracks_rows(self) -> bool:
        """Whether moved rows must keep their ids."""
        properties = self.snapshot.properties
        return properties.row_tracking and properties.materialized_row_id_column is not None

    @property
    def uses_vectors(self) -> bool:
        """Whether deleted rows are marked in deletion vectors, not rewritten."""
        return (
            self.snapshot.properties.enable_deletion_vectors
            and "deletionVectors" in self.snapshot.features
        )

    def target(self, *, data_change: bool = True) -> Target:
        """Where new rows go."""
        return Target(
            snapshot=self.snapshot,
            store=self.store,
            system=self.system,
            storage_options=self.storage_options,
            data_change=data_change,
        )

    def after(self, actions: tuple[Action, ...]) -> TableAccess:
        """The same work on the table as these actions leave it."""
        return replace(self, snapshot=self.snapshot.apply(actions))

    def qualified(self, frame: DataFrame, alias: str | None) -> DataFrame:
        """The frame under the alias by which the statement names its columns."""
        name = alias or self.name
        return frame if name is None else frame.alias(name)

    def predicate(self, expression: Expression | None, alias: str | None) -> Predicate | None:
        """What skipping and conflict checks know of a condition; None for every row.

        Raises InvalidRequest for a column that the table doesn't have.
        """
        if expression is None:
            return None
        if isinstance(expression, NativeColumn) or expression.references:
            return Opaque(condition_text(expression))
        aliases = tuple(name for name in (alias, self.name) if name is not None)
        try:
            text = expression.rewritten(lambda _: None)  # `db.t.id` is `t.id` there
            return self.bound(parse_predicate(text, aliases=aliases))
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.snapshot.table}: {error}") from error

    def bound(self, predicate: Predicate) -> Predicate:
        """The predicate over the table's columns. Raises InvalidRequest for an unknown one."""
        return bind(predicate, self.snapshot.schema, time_zone=self.time_zone)

    @property
    def time_zone(self) -> str:
        """The time zone of timestamps that name none: Spark's setting."""
        return self.spark.conf.get("spark.sql.session.timeZone") or "UTC"

    def read(self, expression: Expression | None, alias: str | None) -> Read:
        """The read of a DELETE or UPDATE, which takes away every row that its condition matches."""
        predicate = self.predicate(expression, alias)
        if expression is None or predicate is None:
            return Read(takes_all=True)
        condition = self.of_the_row(predicate, expression, alias)
        return Read(
            predicate=predicate,
            text=condition_text(expression),
            takes_all=condition is not None,
            condition=condition,
        )

    def of_the_row(
        self, predicate: Predicate, expression: Expression, alias: str | None
    ) -> Condition | None:
        """A condition as rows are asked for it later; None unless it is of the row alone."""
        is_of_the_row = self.by_row(predicate) or _is_of_the_row(expression)
        return Condition(expression, alias, self.time_zone) if is_of_the_row else None

    def by_row(self, predicate: Predicate) -> bool:
        """Whether conflicts over a condition are found by row: a function of plain columns."""
        fields = (self.snapshot.schema.find(column[0]) for column in columns_of(predicate))
        return is_deterministic(predicate) and all(
            item is not None and isinstance(item.type, Primitive) for item in fields
        )


def _is_of_the_row(expression: Expression) -> bool:
    """Whether a condition given as a Column is certainly a function of the row alone.

    Spark Connect doesn't show what a Column is made of.
    """
    column = getattr(getattr(expression, "column", None), "_jc", None)
    return column is not None and calls_are_of_the_row(column.node().sql())


def calls_are_of_the_row(text: str) -> bool:
    """Whether the calls in Spark's text of a Column, `=(upper(s), 'A')`, are of the row alone.

    For that question one call stands for another whose answer depends on its arguments alone too,
    so operators are written as a call that SQL has.
    """
    if len(text) > _TEXT_MAX:
        return False
    try:
        return is_deterministic(parse_predicate(_CALL.sub(_sql_call, text)))
    except InvalidRequest:
        return False


def _sql_call(call: re.Match[str]) -> str:
    name = call[1]
    if name.lower() in _OPERATORS:
        return "coalesce("
    return call[0] if name.isidentifier() else "rand("  # a function of nobody knows what


def condition_text(expression: Expression) -> str:
    """A condition as its author wrote it, for messages and history."""
    return expression.text if isinstance(expression, SqlText) else str(expression.column)
