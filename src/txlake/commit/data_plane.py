"""The data plane's port: Protocols for the rows of tables, queries and results.

The adapters are Spark's, in `spark`, and the simulation's, whose rows are Python's. Both return
rows as DataFrames: Spark's own, or a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from txlake.commit.change import Change
from txlake.commit.identities import Identities
from txlake.commit.net_changes import ChangedRows
from txlake.commit.table_log import TableLog
from txlake.conflict.context import RowProbe
from txlake.conflict.footprint import Read
from txlake.log.cubes import ClusteringPlan
from txlake.log.predicates import Predicate
from txlake.log.small_files import PackingLimits
from txlake.log.snapshot import Snapshot
from txlake.log.text_rules import TextRules
from txlake.log.time_zones import TimeZone
from txlake.ports import Store, System
from txlake.protocol.actions import Action, Add, Cdc
from txlake.protocol.partition_values import PartitionScalar
from txlake.protocol.types import DataType, Struct
from txlake.sql.statements import (
    Assignment,
    ChangeRange,
    ComputedValues,
    Expression,
    Merge,
    Reference,
    RelationName,
    SqlText,
    TimeTravel,
    Values,
    ViewSchema,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLineage:
    """The table version that a scan reads.

    Attributes:
        table: the table's name, for messages.
        url: the table's URL.
        lake: the id of the table's lake; None for a path table.
        table_id: the id in the table's metadata.
        version: the version read.
        chain: by branch, the version that it began the table with (`TableEntry.chain`).
        transaction: id of the explicit transaction that made the scan; None outside of one.
        has_own_changes: whether the rows include uncommitted changes of that transaction.
        rollbacks: how many rollbacks to a savepoint the transaction had made before the scan.
        condition: the condition that all scanned rows meet: its text, and the names by which it
            refers to the table.
    """

    table: str
    url: str
    lake: str | None
    table_id: str
    version: int
    chain: tuple[tuple[str, int], ...] = ()
    transaction: str | None = None
    has_own_changes: bool = False
    rollbacks: int = 0
    condition: tuple[str, tuple[str, ...]] | None = None


class TableData(Protocol):
    """One table as a statement sees it, and the means to read and write its rows.

    Methods that change rows write data files that aren't part of the table yet, and return the
    change that adds them. They raise InvalidRequest for a missing column, a type that doesn't fit,
    and a row that violates a constraint, before anything is staged.
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
        """The rules by which the statement's texts are read."""

    def column_of(self, expression: Expression, /) -> Column:
        """Return an expression over the table's rows."""

    def predicate(self, expression: Expression | None, alias: str | None) -> Predicate | None:
        """Return a condition for data skipping and conflict checks; None for every row.

        Raises InvalidRequest for a column that the table doesn't have.
        """

    def read(self, expression: Expression | None, alias: str | None) -> Read:
        """Return the read of a DELETE or UPDATE, which deletes every row that it matches."""

    def merge_read(self, statement: Merge, source: Struct) -> Read:
        """Return a MERGE's read of the target: the part of its ON condition about the target."""

    def row_condition(
        self, predicate: Predicate, expression: Expression, alias: str | None
    ) -> Condition | None:
        """Return a condition for later row probes; None unless it depends on the row alone."""

    def by_row(self, predicate: Predicate) -> bool:
        """Return whether conflicts of a condition are found by rows: it uses plain columns only."""

    # Existing rows

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
        together: Collection[str] | None = None,
    ) -> DataFrame:
        """Return the live rows of these files.

        `deleted` replaces a file's own deletion vector, by its ordinal. With `positions` the rows
        have their file's ordinal and their position in it, and row ids if the table tracks rows.
        `together`: all names in a query that asks for no file of a row and joins nothing, in lower
        case, with `*` if it may use other columns too. Many small files may then be read in a way
        that tells Spark neither their names nor how large they are, without columns that aren't
        among the names.
        """

    def plain_rows(
        self,
        files: pa.Table,
        predicate: Predicate | None,
        limit: int | None,
        columns: Sequence[str] | None = None,
        /,
    ) -> pa.Table | None:
        """Return the live rows of these files for which the predicate is true, at most `limit`.

        This process reads them, with these columns of the table, or all in its order for None. None
        if it can't read or compare them exactly as Spark, and if they are many.
        """

    def scan_with_metadata(self, files: pa.Table) -> DataFrame:
        """Return the rows of these files with Spark's column `_metadata`."""

    def few_rows(self, files: pa.Table, predicate: Predicate) -> DataFrame | None:
        """Return the live rows of these files for which a bound predicate may hold, without a Spark
        job.

        Rows for which it doesn't hold may be among them. None if they are many, or only Spark finds
        them.
        """

    def qualified(self, frame: DataFrame, alias: str | None) -> DataFrame:
        """Return the frame under the alias by which the statement names its columns."""

    def footer(self, add: Add) -> FileMetaData:
        """Return the file's footer. Raises CorruptTable if it is missing or no Parquet file."""

    def violating_row(self, condition: str) -> Mapping[str, object] | None:
        """Return a row for which the condition isn't true; None where there is none."""

    def files_of_partitions(self, where: Expression | None) -> pa.Table:
        """Return the files of the partitions for which the condition is true, in FILES_SCHEMA.

        Raises InvalidRequest for a condition on other columns, or with a query in it.
        """

    # New rows

    def to_frame(self, rows: Rows, names: Sequence[str]) -> DataFrame:
        """Return rows to write as a DataFrame; `names` are the columns of an INSERT's VALUES."""

    def with_constants(self, frame: DataFrame, literals: Mapping[str, str]) -> DataFrame:
        """Return the rows with another column, of one value, for each of these table columns.

        `literals` has SQL literals by column, which are read as in Spark's PARTITION clause: as
        text, in the session's time zone, which becomes a value of the column. Raises InvalidRequest
        for a column that the table doesn't have.
        """

    def constants(self, literals: Mapping[str, str]) -> Mapping[str, PartitionScalar]:
        """Return the values that `with_constants` gives to partition columns."""

    def append(self, new: Rows, placement: Placement) -> Change:
        """Add the rows."""

    def overwrite(self, new: Rows, placement: Placement) -> Change:
        """Replace every row."""

    def overwrite_partitions(
        self, new: Rows, placement: Placement, *, keep_null_partitions: bool = False
    ) -> Change:
        """Replace the partitions that the rows fall into, and no others.

        With `keep_null_partitions` none that has a NULL in a partition column: rows are added.
        """

    def replace_where(self, new: Rows, placement: Placement, condition: Expression) -> Change:
        """Replace the rows for which the condition is true. All new rows must match it.

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
        """Replace the rows whose values in the columns are those of a new row; a key with a NULL
        replaces nothing.

        `literal_of` returns a value as an SQL literal. `view_of` creates a temporary view of a
        frame and returns its name. Raises InvalidRequest for a column that the table doesn't have.
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
        """Delete the rows for which the condition is true with one of the new rows, and add all new
        rows.

        `aliases`: the table's and the source's. `view_of` creates a temporary view of a frame and
        returns its name. Raises InvalidRequest for a condition with a query in it, an unknown or
        ambiguous column in it, and one alias for both.
        """

    # Changed rows

    def delete(self, condition: Expression | None, alias: str | None = None) -> Change:
        """Delete the rows for which the condition is true; all rows without one."""

    def update(
        self,
        assignments: tuple[Assignment, ...],
        condition: Expression | None,
        alias: str | None = None,
    ) -> Change:
        """Change the rows for which the condition is true; all rows without one."""

    def merge(self, statement: Merge, source: DataFrame, evolve: EvolveSchema) -> Change:
        """Change the target by the first clause that holds for each row.

        Raises InvalidRequest with an example when two source rows change one target row, when a
        clause names a column that isn't there, or when types don't fit.
        """

    def write_changes(self, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
        """Write change data files with these rows, with the values that they have in their files.

        The table is as it will be; files of it that rows were in before may be named too.
        """

    def changed_rows(self, changed: Sequence[ChangedRows]) -> DataFrame:
        """Return these rows with the values that they have in their files, and `_change_type`.

        The table and its files are as for `write_changes`.
        """

    def differing_rows(self, changed: Sequence[ChangedRows]) -> DataFrame:
        """Return these deleted and inserted rows as `changed_rows`, without those that are among
        both with equal values.

        Raises InvalidRequest for a table with columns that can't be compared.
        """

    # Moved rows

    def compact(
        self,
        where: Expression | None = None,
        *,
        purge: bool = False,
        limits: PackingLimits | None = None,
    ) -> Change:
        """Pack small files, and files with many deleted rows, into files of the target size.

        With `purge` every file that has a deletion vector is rewritten, and nothing else is. With
        `limits` only what `log.small_files` chooses by them is rewritten.
        `where` may name partition columns only; InvalidRequest otherwise.
        """

    def rewrite(self, files: pa.Table, onto: Snapshot) -> Change:
        """Write the live rows of these files anew, as files of the table as it is at `onto`.

        That has the same columns, though other names for them in files, or other types there. No
        row changes; where rows were isn't recorded.
        """

    def rearranged(self, change: Change) -> Change:
        """Return the change, an overwrite of this table, as one that only moves rows.

        Raises InvalidRequest when the new files don't have exactly the rows of the old ones, or a
        part of a file stays; UnsupportedFeature for a table with row tracking.
        """

    def zorder(self, columns: tuple[str, ...], where: Expression | None = None) -> Change:
        """Rewrite whole partitions with their rows clustered by the columns' Z-order."""

    def cluster(self, plan: ClusteringPlan) -> Change:
        """Rewrite the plan's files as cubes, their rows clustered by the clustering columns."""


class ResultRows(Protocol[ResultRows_co]):
    """Makes the rows of results that no query returns."""

    def frame(self, schema: Struct, rows: Sequence[tuple[object, ...]]) -> ResultRows_co:
        """Return rows of a given schema."""

    def counts(self, counts: Mapping[str, int]) -> ResultRows_co:
        """Return one row of counts, named as Databricks names them."""

    def nothing(self) -> ResultRows_co:
        """Return the result of statements without one: no rows, no columns."""


class DataPlane(ResultRows["DataFrame"], Protocol):
    """Reads and writes rows for the sessions of one engine, which may share it."""

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
        """Return a context in which Spark parses texts by the settings of this plane's session."""

    def running(self, on_spark: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context for a statement: as `active`, and Spark's errors are raised as txlake's.

        `on_spark` is called before Spark does a part of the work, in the statement's thread.
        Raises a TxlakeError where Spark raises one of its own.
        """

    def setting(self, key: str, default: str) -> str:
        """Return a setting of the Spark session; the default while none was started."""

    def settings_held(self) -> AbstractContextManager[None]:
        """Return a context in which the thread reads the session's settings from Spark only once.

        Inside, `text_rules` and `setting` see one state of them. Contexts may be nested: the outer
        one's state holds.
        """

    def forget_settings(self) -> None:
        """Read the session's settings anew in the present `settings_held`: a statement may have
        changed them.
        """

    def table_defaults(self) -> Mapping[str, str]:
        """Return the properties that Spark sets for new tables; none before the session starts."""

    def close(self) -> None:
        """Release its resources. Doesn't stop Spark, which others may use."""

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
        """Return a table as it was at a snapshot.

        Args:
            snapshot: its state.
            store: where its files are.
            system: provides the clock and the names of new files.
            name: qualifies its columns when a statement gives no alias.
            allowed: returns the folders, beside the table's own, in which its files may lie.
            column_of: makes a statement's expressions columns; without it they name no tables.
            identities: provides the values of identity columns; None: those after the snapshot's
                mark.
            rules: how the statement's texts are read; None: by `text_rules`.
        """

    def row_probe(self, table: Callable[[], TableData]) -> RowProbe:
        """Return the probe of a winner's rows, with the conditions of reads of this table.

        `table` returns the table as the transaction read it. The probe evaluates nothing while the
        data plane isn't started, which takes longer than repeating the transaction.
        """

    def record_read(self, log: TableLog, version: int) -> None:
        """Record that rows of a version may be read, so that a missing file can be explained."""

    def with_lineage(self, frame: DataFrame, lineage: ScanLineage) -> DataFrame:
        """Return the same rows, in a plan that carries their lineage."""

    # Texts

    def column(self, expression: Expression, view: Callable[[Reference], str | None]) -> Column:
        """Return the column of an expression; `view` returns the view that replaces each table."""

    def timestamp_ms(self, travel: TimeTravel) -> int:
        """Return the time of a TIMESTAMP AS OF, in milliseconds since the epoch.

        Raises InvalidRequest for what is no timestamp, and for an expression that isn't constant.
        """

    def constant_range(self, requested: ChangeRange) -> ChangeRange:
        """Return a range of changes whose ends are versions or times instead of expressions.

        Raises InvalidRequest for anything else, NULL among it, and for an expression that isn't
        constant.
        """

    def type_of(self, text: str, schema: Struct) -> DataType:
        """Return the type of an expression over columns of a schema. Raises InvalidRequest."""

    def relations(self, text: str) -> Sequence[RelationName] | None:
        """Return the names that a query reads, by its engine's parser; None if unknown."""

    def query(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a query over these frames, which it names in braces, `{t}`."""

    def make_view(self, name: str, frame: DataFrame) -> None:
        """Create a temporary view of the rows, or replace the one of this name."""

    def drop_view(self, name: str) -> None:
        """Drop the temporary view of this name, if there is one."""

    def spark_relation(self, name: str) -> DataFrame | None:
        """Return what Spark itself has by a name, e.g. a temporary view; None if nothing."""

    def temporary_views(self, names: Collection[str] | None = None) -> Collection[str]:
        """Return the names of the session's temporary views, as they were created, in any order.

        `names` limits the answer to views with one of these names, whatever their case.
        """

    def reads_view(self, frame: DataFrame, mark: str) -> bool:
        """Return whether the rows are those of the temporary view created with this mark."""

    def with_view_columns(self, view: str, frame: DataFrame, schema: ViewSchema) -> DataFrame:
        """Return the rows of a view's query with the view's columns.

        Raises InvalidRequest when a column is gone, its type doesn't fit the view's, or two columns
        have one name.
        """

    def missing_table(self, error: BaseException) -> tuple[str, ...] | None:
        """Return the name that Spark didn't find, in parts; None for any other error."""

    # Rows from and for callers

    def files(self, file_format: str, options: Mapping[str, str], urls: Sequence[str]) -> DataFrame:
        """Return the rows of files in a format that Spark reads, `CSV`, with its options for it."""

    def caller_rows(self, frame: object) -> DataFrame | pa.Table:
        """Return the rows of a caller's frame. Raises InvalidRequest if it is none."""

    def schema_of(self, rows: DataFrame | pa.Table) -> Struct:
        """Return the Delta schema of rows."""
