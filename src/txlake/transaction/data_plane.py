"""What statements ask of data, as Protocols: the rows of tables, queries, the rows of an answer.

The adapters are Spark's, in `spark`, and the simulation's, whose rows are Python's. Both hand out
rows as DataFrames: Spark's own, or what stands for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from txlake.conflict.footprint import Read
from txlake.log.cubes import Clustering
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot
from txlake.log.text_rules import TextRules
from txlake.log.time_zones import TimeZone
from txlake.ports import Store, System
from txlake.protocol.actions import Action, Add, Cdc
from txlake.protocol.partition_values import PartitionScalar
from txlake.protocol.types import DataType, Struct
from txlake.statements import (
    Assignment,
    ComputedValues,
    Expression,
    Merge,
    Reference,
    RelationName,
    SqlText,
    Values,
)
from txlake.transaction.change import Change
from txlake.transaction.identities import Identities
from txlake.transaction.net_changes import ChangedRows

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import Column, DataFrame, SparkSession

ResultRows_co = TypeVar("ResultRows_co", covariant=True)

Rows: TypeAlias = "DataFrame | pa.Table | Values | ComputedValues"
"""Rows that are written: a query's, a caller's own, an INSERT's."""
EvolveSchema: TypeAlias = Callable[[Struct], tuple[Action, ...]]
"""The actions that change a table's schema to the one given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which of the table's columns the rows' columns go to: by name, or in order of `columns`."""

    by_name: bool = True
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A statement's condition on a table's rows, and the alias by which it names the table.

    Attributes:
        zone: the time zone in which it was evaluated; None: it depends on none.
    """

    expression: Expression
    alias: str | None
    zone: str | None


class TableData(Protocol):
    """One table as a statement sees it, and the means to read and write its rows.

    What changes rows writes data files of the table, not yet part of it, and gives the change that
    makes them so. All of it raises InvalidRequest for a column that isn't there, for a type that
    doesn't fit, and for a row that violates a constraint, before anything is staged.
    """

    @property
    def snapshot(self) -> Snapshot:
        """The table's state."""

    # Conditions

    @property
    def time_zone(self) -> TimeZone:
        """The time zone of timestamps that name none."""

    @property
    def rules(self) -> TextRules:
        """How the statement's texts read."""

    def column_of(self, expression: Expression, /) -> Column:
        """An expression over the table's rows."""

    def predicate(self, expression: Expression | None, alias: str | None) -> Predicate | None:
        """What skipping and conflict checks know of a condition; None for every row.

        Raises InvalidRequest for a column that the table doesn't have.
        """

    def read(self, expression: Expression | None, alias: str | None) -> Read:
        """The read of a DELETE or UPDATE, which takes away every row that its condition matches."""

    def merge_read(self, statement: Merge, source: Struct) -> Read:
        """What a MERGE reads of the target: what its ON condition says of that alone."""

    def row_condition(
        self, predicate: Predicate, expression: Expression, alias: str | None
    ) -> Condition | None:
        """A condition as rows are asked for it later; None unless it is of the row alone."""

    def by_row(self, predicate: Predicate) -> bool:
        """Whether conflicts over a condition are found by row: a function of plain columns."""

    # Rows that are there

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
    ) -> DataFrame:
        """The live rows of these files; `deleted` stand for a file's own vector, by its ordinal.

        With positions also each row's ordinal of its file and place in it, and row ids where the
        table tracks rows.
        """

    def plain_rows(
        self, files: pa.Table, predicate: Predicate | None, limit: int | None, /
    ) -> pa.Table | None:
        """The live rows of these files for which the predicate is true, at most `limit`.

        Read by this process, all columns of the table in its order; None where it can't tell them
        exactly, and where they are many.
        """

    def scan_with_metadata(self, files: pa.Table) -> DataFrame:
        """The rows of these files with the column `_metadata`, what Spark tells of their files."""

    def few_rows(self, files: pa.Table, predicate: Predicate) -> DataFrame | None:
        """The live rows of these files for which a bound predicate may hold.

        Others may be among them. None where they are many, or not found at once without Spark.
        """

    def qualified(self, frame: DataFrame, alias: str | None) -> DataFrame:
        """The frame under the alias by which the statement names its columns."""

    def footer(self, add: Add) -> FileMetaData:
        """The file's footer. Raises CorruptTable where it isn't there, or is no Parquet file."""

    def violating_row(self, condition: str) -> Mapping[str, object] | None:
        """A row for which the condition isn't true; None where there is none."""

    def files_of_partitions(self, where: Expression | None) -> pa.Table:
        """The files of the partitions for which the condition is true, in FILES_SCHEMA.

        Raises InvalidRequest for a condition on other columns, or with a query in it.
        """

    # Rows that come

    def given(self, rows: Rows, names: Sequence[str]) -> DataFrame:
        """Rows to write as a DataFrame; those of an INSERT's VALUES are columns of these names."""

    def with_constants(self, frame: DataFrame, literals: Mapping[str, str]) -> DataFrame:
        """The rows with a column more for each of these columns of the table, of one value each.

        `literals` has SQL literals by column. As Spark's PARTITION clause reads one: as text, in
        the session's time zone, which becomes a value of the column.
        """

    def constants(self, literals: Mapping[str, str]) -> Mapping[str, PartitionScalar]:
        """The values that `with_constants` gives to partition columns."""

    def append(self, new: Rows, placement: Placement) -> Change:
        """Adds the rows."""

    def overwrite(self, new: Rows, placement: Placement) -> Change:
        """Replaces every row."""

    def overwrite_partitions(
        self, new: Rows, placement: Placement, *, keep_null_partitions: bool = False
    ) -> Change:
        """Replaces the partitions that the rows fall into, and no others.

        With `keep_null_partitions` none that has a NULL in a partition column: rows are added.
        """

    def replace_where(self, new: Rows, placement: Placement, condition: Expression) -> Change:
        """Replaces the rows for which the condition is true. All new rows must match it.

        Raises InvalidRequest with the row that doesn't; nothing is written.
        """

    def replace_using(
        self,
        new: Rows,
        placement: Placement,
        columns: Sequence[str],
        *,
        literal_of: Callable[[object], str],
        view_of: Callable[[DataFrame], str],
    ) -> Change:
        """Replaces the rows whose values in the columns are those of a new row; null is no value.

        Raises InvalidRequest for a column that the table doesn't have.
        """

    def replace_on(
        self,
        new: DataFrame,
        placement: Placement,
        condition: SqlText,
        *,
        aliases: tuple[str | None, str | None],
        view_of: Callable[[DataFrame], str],
    ) -> Change:
        """Replaces the rows for which the condition is true with one of the new rows.

        `aliases`: those of the table and of the source.

        Raises InvalidRequest for a condition with a query in it, or a column that isn't told apart.
        """

    # Rows that change

    def delete(self, condition: Expression | None, alias: str | None = None) -> Change:
        """Deletes the rows for which the condition is true; all rows without one."""

    def update(
        self,
        assignments: tuple[Assignment, ...],
        condition: Expression | None,
        alias: str | None = None,
    ) -> Change:
        """Changes the rows for which the condition is true; all rows without one."""

    def merge(self, statement: Merge, source: DataFrame, evolve: EvolveSchema) -> Change:
        """Changes the target by the first clause that holds for each row.

        Raises InvalidRequest with an example when two source rows change one target row, when a
        clause names a column that isn't there, or when types don't fit.
        """

    def write_changes(self, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
        """Writes change data files that tell of these rows, with the values that they have there.

        The table is as it will be; files of it that rows were in before may be named too.
        """

    # Rows that move

    def compact(self, where: Expression | None = None, *, purge: bool = False) -> Change:
        """Packs small files, and files with many deleted rows, into files of the target size.

        With `purge` every file that has a deletion vector is rewritten, and nothing else is.
        `where` may name partition columns only; InvalidRequest otherwise.
        """

    def rewrite(self, files: pa.Table, onto: Snapshot) -> Change:
        """Writes the live rows of these files anew, as files of the table as it is at `onto`.

        That has the same columns, though other names for them in files, or other types there. No
        row changes; where rows were isn't recorded.
        """

    def rearranged(self, change: Change) -> Change:
        """The change, an overwrite of this table, as one that moves rows into other files only.

        Raises InvalidRequest when the new files don't have just the rows that the others had, or a
        part of a file stays; UnsupportedFeature for a table whose rows have ids.
        """

    def zorder(self, columns: tuple[str, ...], where: Expression | None = None) -> Change:
        """Rewrites whole partitions with their rows clustered by the columns' Z-order."""

    def cluster(self, plan: Clustering) -> Change:
        """Rewrites the plan's files as cubes, their rows clustered by the clustering columns."""


class ResultRows(Protocol[ResultRows_co]):
    """Makes the rows of answers that no query gives."""

    def frame(self, schema: Struct, rows: Sequence[tuple[object, ...]]) -> ResultRows_co:
        """Rows of a given schema."""

    def counts(self, counts: Mapping[str, int]) -> ResultRows_co:
        """One row of counts, named as Databricks names them."""

    def nothing(self) -> ResultRows_co:
        """What statements without a result answer: no rows, no columns."""


class DataPlane(ResultRows["DataFrame"], Protocol):
    """Who reads and writes rows for the sessions of one engine; they may share it."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when there is none: for what is Spark's own."""

    @property
    def time_zone(self) -> TimeZone:
        """The time zone of timestamps that name none."""

    @property
    def is_started(self) -> bool:
        """Whether rows can be looked at without waiting for Spark to start."""

    @property
    def text_rules(self) -> TextRules:
        """How the Spark session reads SQL text now; Spark's defaults while there is no session."""

    def active(self) -> AbstractContextManager[None]:
        """A block in which Spark parses every text by the settings of this plane's session."""

    def setting(self, key: str, default: str) -> str:
        """A setting of the Spark session; the default while none was started."""

    def table_defaults(self) -> Mapping[str, str]:
        """Properties that the Spark session gives to new tables; none while none was started."""

    def close(self) -> None:
        """Releases what it holds; Spark stays, it may be another's."""

    # Tables

    def table(
        self,
        snapshot: Snapshot,
        store: Store,
        *,
        system: System,
        name: str | None,
        allowed: Callable[[], Iterable[str]],
        column_of: Callable[[Expression], Column] | None = None,
        identities: Identities | None = None,
        rules: TextRules | None = None,
    ) -> TableData:
        """A table as it was at a snapshot.

        Args:
            snapshot: its state.
            store: where it is.
            system: gives the clock and the names of new files.
            name: what qualifies its columns when a statement gives no alias.
            allowed: gives the folders, beside the table's own, in which its files may lie.
            column_of: makes a statement's expressions columns; without it they name no tables.
            identities: gives the values of identity columns; without it the snapshot's mark does.
            rules: how the statement's texts read; without it `text_rules` says.
        """

    # Texts

    def column(self, expression: Expression, view: Callable[[Reference], str | None]) -> Column:
        """The column of an expression, in which tables are replaced by the views of these names."""

    def type_of(self, text: str, schema: Struct) -> DataType:
        """The type of an expression over columns of a schema. Raises InvalidRequest."""

    def relations(self, text: str) -> Sequence[RelationName] | None:
        """The names that a query reads, by the parser of its rows; None where it can't tell."""

    def query(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of a query over these frames, which it names in braces, `{t}`."""

    def make_view(self, name: str, frame: DataFrame) -> None:
        """Gives the rows a name that expressions and queries know."""

    def drop_view(self, name: str) -> None:
        """Takes the name away."""

    def found(self, name: str) -> DataFrame | None:
        """What Spark itself has by a name: a temporary view, say; None where there is nothing."""

    def temporary_views(self, names: Collection[str] | None = None) -> Collection[str]:
        """Return the names of the session's temporary views, as they were created, in any order.

        `names` limits the answer to views with one of these names, whatever their case.
        """

    # Rows from and for callers

    def files(self, file_format: str, options: Mapping[str, str], urls: Sequence[str]) -> DataFrame:
        """The rows of files in a format that Spark reads, `CSV`, with its options for it."""

    def held(self, frame: object) -> DataFrame | pa.Table:
        """The rows of a caller's frame. Raises InvalidRequest where it is none."""

    def schema_of(self, rows: DataFrame | pa.Table) -> Struct:
        """The Delta schema of rows."""
