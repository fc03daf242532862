"""The context of one statement: resolves names to tables, and SQL texts to columns and frames.

Owns the temporary views that stand for tables in the statement's texts while it runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from txlake.catalog import TableEntry
from txlake.commit.data_plane import Condition, DataPlane, ScanLineage, TableData
from txlake.commit.validation import check_removable
from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.predicates import Predicate, bind, has_schema_spelling, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.log.time_zones import TimeZone
from txlake.protocol.types import Struct
from txlake.session.branch_sizes import kept_alone
from txlake.session.branch_use import snapshot_on
from txlake.session.change_feed import OUT_OF_RANGE, feed_frame, is_open
from txlake.session.conflict_turns import NO_TURNS, Turns
from txlake.session.engine import Engine, Handle
from txlake.session.filters import Filter, condition_of, names_in
from txlake.session.statement_tables import OWN_VIEW, StatementTables
from txlake.session.transaction import Transaction
from txlake.session.view_queries import Viewed
from txlake.session.views import CatalogEntrySource, rows_of, view_named
from txlake.session.views.describe import Inspection, Rows, describe
from txlake.sql import metadata_column
from txlake.sql.statements import (
    ChangeRange,
    DescribeHistory,
    Expression,
    Reference,
    SqlText,
    Table,
    TableName,
    TimeTravel,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_logger = logging.getLogger(__name__)

# What Spark tells of the file that it reads a row from.
_TELLS_FILES = re.compile(r"input_file|_metadata", re.IGNORECASE)
_VIEWS_KEEP_PLANS = "spark.sql.legacy.storeAnalyzedPlanForView"


@dataclass(kw_only=True)
class Context:
    """One statement in one transaction.

    Attributes:
        tables: what the names of the statement mean.
        writes: whether the statement writes; what it reads then counts as read for its writes.
        lock_timeout_ms: how long the statement waits for a lock; -1 waits without limit.
        turns: what it requests before its locks.
        use: changes the session's current database.
        rules: how the session reads the statement's texts.
        records_reads: whether rows of tables count as read, which they don't where a query is only
            planned.
    """

    tables: StatementTables
    writes: bool = False
    lock_timeout_ms: int = -1
    turns: Turns = NO_TURNS
    use: Callable[[str], None]
    rules: TextRules = DEFAULT_RULES
    records_reads: bool = True
    _views: list[str] = field(default_factory=list)
    # The views whose queries are being planned, from the outermost.
    _within: tuple[str, ...] = ()

    @property
    def engine(self) -> Engine:
        """The engine of the session."""
        return self.tables.engine

    @property
    def transaction(self) -> Transaction:
        """The transaction of the statement."""
        return self.tables.transaction

    @property
    def plane(self) -> DataPlane:
        """The data plane, which reads and writes rows."""
        return self.engine.plane

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.plane.spark

    def in_transaction(self, transaction: Transaction) -> Context:
        """Return a context of another transaction, in which names mean the same tables."""
        return replace(self, tables=replace(self.tables, transaction=transaction))

    def close(self) -> None:
        """Drop the statement's temporary views.

        A view that Spark fails to drop is logged, and stays under a name that no statement uses.
        """
        while self._views:
            name = self._views.pop()
            try:
                self.plane.drop_view(name)
            except TxlakeError as error:
                _logger.warning("the temporary view %s stays in Spark's session: %s", name, error)

    # Rows of tables

    def snapshot(
        self, handle: Handle, travel: TimeTravel | None = None, *, newest_if_later: bool = False
    ) -> Snapshot:
        """Return the table's snapshot with the transaction's own changes, or at a version or time.

        Raises InvalidRequest for travel in a table that this transaction creates, and for a time
        after the newest commit unless `newest_if_later`; otherwise as `TableLog.snapshot`.
        """
        if travel is None:
            return self.transaction.open(handle).view
        self.require_history(handle)
        if travel.branch_or_tag is not None:
            return snapshot_on(self.engine, handle, travel.branch_or_tag)
        if travel.version is not None:
            return handle.log.snapshot(version=travel.version)
        time_ms = self.timestamp_ms(travel)
        return handle.log.snapshot(timestamp_ms=time_ms, newest_if_later=newest_if_later)

    def require_history(self, handle: Handle) -> None:
        """Raise InvalidRequest for a table that this transaction creates: it has no version yet."""
        if handle.is_new:
            raise InvalidRequest(
                f"{handle.name} is made by this transaction: it has no versions before COMMIT"
            )

    def timestamp_ms(self, travel: TimeTravel) -> int:
        """Return the time of a TIMESTAMP AS OF, in milliseconds since the epoch.

        Raises InvalidRequest when it is no timestamp.
        """
        return self.plane.timestamp_ms(travel)

    def zone(self) -> TimeZone:
        """Return the time zone of timestamps that name none."""
        return self.plane.time_zone

    def work(self, handle: Handle, *, removes_rows: bool = False) -> TableData:
        """Return the data plane's access to the table at the transaction's snapshot.

        Raises InvalidRequest or UnsupportedFeature before any file is written for a write in a
        read-only transaction, to a table with a feature that txlake lacks, to an unsafe store, or
        that removes rows from an append-only table.
        """
        if self.writes:
            self.transaction.require_writes(handle)
            view = self.transaction.open(handle).view
            if view.is_created:
                view.require_writable()
                if removes_rows:
                    check_removable(view)
            handle.store.ensure_safe()
        return self.work_on(handle, self.transaction.open(handle).view)

    def work_on(self, handle: Handle, snapshot: Snapshot) -> TableData:
        """Return the data plane's access to the table at a snapshot, without checks."""
        staging = self.transaction.staging
        return self.engine.work(
            handle,
            snapshot,
            system=staging,
            column_of=self.column_of,
            identities=self.transaction.identities(handle),
            rules=self.rules,
        )

    def scan(
        self,
        handle: Handle,
        travel: TimeTravel | None = None,
        predicate: Predicate | None = None,
        text: str | None = None,
        condition: Condition | None = None,
        *,
        file_metadata: bool = False,
        at_once: bool = False,
        together: Collection[str] | None = None,
    ) -> DataFrame:
        """Return the table's rows as a DataFrame, and record the read for conflict checks, unless
        the context records none.

        Only files that may match the predicate are read. The rows are filtered neither by the
        predicate nor by the condition; at commit the condition decides whether rows of concurrent
        transactions match. A read of an older version (`travel`) isn't recorded. `file_metadata`
        adds the column `_metadata`. With `at_once` the driver may read a few rows now, and leave
        out rows for which the predicate isn't true. `together`: as for `TableData.scan`.
        """
        snapshot = self.snapshot(handle, travel)
        if travel is None and self.records_reads:
            table = self.transaction.open(handle)
            if self.writes:
                table.read(predicate, text, condition=condition)
            else:
                table.plain_read(predicate, text, condition=condition)
        work = self.work_on(handle, snapshot)
        self.plane.record_read(handle.log, snapshot.version)
        files, frame = work.snapshot.select(predicate), None
        if at_once and predicate is not None:
            frame = work.few_rows(files, predicate)
        if frame is None:
            scan = partial(work.scan, together=together)
            frame = work.scan_with_metadata(files) if file_metadata else scan(files)
        if travel is not None:
            return frame
        return self.plane.with_lineage(frame, self._lineage(handle, predicate, text))

    def changes(self, table: Table, requested: ChangeRange) -> DataFrame:
        """Return the change data feed of a table, up to the version that the transaction reads.

        If the range ends after that version, or has no end, the transaction conflicts with later
        changes of the table. Raises InvalidRequest for an unknown table, for one that this
        transaction creates, and as `DataPlane.constant_range` and `change_feed.feed_frame` do.
        """
        handle = self.tables.require(table)
        self.require_history(handle)
        part = self.transaction.open(handle)
        range_ = self.plane.constant_range(requested)
        if self.records_reads and is_open(range_, part.base.version):
            if self.writes:
                part.read()
            else:
                part.plain_read()
        self.plane.record_read(handle.log, part.base.version)
        return feed_frame(
            handle.log,
            range_,
            part.base.version,
            moment_ms=self.timestamp_ms,
            work_on=lambda snapshot: self.work_on(handle, snapshot),
            may_be_later=self.plane.setting(OUT_OF_RANGE, "false").lower() == "true",
        )

    def _lineage(
        self, handle: Handle, predicate: Predicate | None, text: str | None
    ) -> ScanLineage:
        """Return the lineage of a scan of the table in the transaction."""
        part, own = self.transaction.open(handle), self.transaction
        return ScanLineage(
            table=handle.name,
            url=handle.place,
            lake=self.engine.catalog.lake_id if handle.in_lake else None,
            table_id=part.base.metadata.id if part.base.is_created else "",
            version=part.base.version,
            chain=handle.chain,
            transaction=own.id if own.explicit else None,
            has_own_changes=part.has_changes,
            rollbacks=own.undone,
            condition=None if predicate is None or text is None else (text, ()),
        )

    # Texts

    def column_of(self, expression: Expression) -> Column:
        """Return an expression as a Column; its subqueries read tables in this transaction.

        The tables of subqueries become temporary views until the statement ends.
        """
        if isinstance(expression, SqlText):
            expression = expression.in_database(self.tables.is_same)
        return self.plane.column(expression, self._view)

    def query(self, sql: SqlText, *, at_once: bool = False) -> DataFrame:
        """Return the rows of a query; tables of the lake in it are read in this transaction.

        Names that the lake doesn't have are left to Spark. With `at_once` the driver may read a few
        rows now, unless the query refers to the files that contain them. Raises Spark's errors, and
        InvalidRequest for a path without a table.
        """
        at_once = at_once and _TELLS_FILES.search(sql.text) is None
        together = names_in(sql, self.rules) if at_once else None
        sql = sql.in_database(self.tables.is_same)
        names_metadata = metadata_column.names_metadata(sql.text)
        if names_metadata:
            places = [one.start for one in sql.references if self._hides_files(one)]
            sql = metadata_column.exclude_metadata(sql, places)
        frames: dict[str, DataFrame] = {}
        tokens: dict[str, str] = {}
        condition = condition_of(sql) if self.rules.agrees_on(sql.text) else None
        mark = "\u2987"
        while mark in sql.text:
            mark += "\u2987"

        def replaced(reference: Reference) -> str | None:
            """Return the token that stands for a table's rows; None for a name of Spark's."""
            frame = self._referenced(
                reference,
                condition,
                names_metadata=names_metadata,
                at_once=at_once,
                together=together,
            )
            if frame is None:
                return None
            name = f"t{len(frames)}"
            frames[name] = frame
            token = f"{mark}{name}\u2988"
            tokens[token] = "{" + name + "}"
            return token

        text = sql.rewritten(replaced).replace("{", "{{").replace("}", "}}")
        for token, marker in tokens.items():
            text = text.replace(token, marker)
        return self.plane.query(text if frames else sql.text, frames)

    def command(self, sql: SqlText) -> DataFrame:
        """Return Spark's result of a command; it reads tables of the lake in this transaction.

        A view that the command creates keeps the table versions of this moment, because Spark can't
        resolve a table of the lake by its name later.
        """
        if not sql.references:
            return self.spark.sql(sql.text)
        before = self.spark.conf.get(_VIEWS_KEEP_PLANS, "false")
        self.spark.conf.set(_VIEWS_KEEP_PLANS, "true")
        try:
            return self.query(sql)
        finally:
            self.spark.conf.set(_VIEWS_KEEP_PLANS, before or "false")

    def _referenced(
        self,
        reference: Reference,
        where: Filter | None = None,
        *,
        names_metadata: bool = False,
        at_once: bool = False,
        together: Collection[str] | None = None,
    ) -> DataFrame | None:
        """Return the rows that a reference in a query stands for; None for a name of Spark's.

        It may be a table, its change feed, a DESCRIBE or SHOW of it, a view, or a system view.
        `where` is the query's condition, by which a table's files are skipped.

        Raises InvalidRequest for a path without a table and for time travel in a view.
        """
        if reference.description is not None:
            rows = self.described(reference.description)
            return self.plane.frame(rows.schema, rows.rows)
        table = reference.table
        if reference.changes is not None:
            return self.changes(table, reference.changes)
        handle = self.tables.find(table)
        if handle is None:
            return self._view_in_text(table, reference.travel)
        if isinstance(table, TableName) or self.tables.exists(handle):
            shows = names_metadata and self._hides_files(reference)
            snapshot = self.snapshot(handle, reference.travel)
            predicate = None
            if where is not None:
                predicate = self.bound(snapshot.schema, where.text, where.names)
            if where is None or predicate is None:
                return self.scan(handle, reference.travel, file_metadata=shows, together=together)
            work, own = self.work_on(handle, snapshot), where.own
            condition = None if own is None else work.row_condition(predicate, own, where.alias)
            return self.scan(
                handle,
                reference.travel,
                predicate,
                where.text,
                condition,
                file_metadata=shows,
                at_once=at_once,
                together=together,
            )
        raise InvalidRequest(
            f"{handle.store.url} is not a Delta table: it has no _delta_log with a commit"
        )

    def _view_in_text(self, table: Table, travel: TimeTravel | None) -> DataFrame | None:
        """Return the rows of a view or system view; None for other names and for paths.

        Raises InvalidRequest for time travel in a view. A system view ignores it.
        """
        if not isinstance(table, TableName):
            return None
        view = self.tables.viewed(table)
        if view is None:
            rows = self.catalog_view(table.parts)
            return None if rows is None else self.plane.frame(rows.schema, rows.rows)
        if travel is not None:
            raise InvalidRequest(f"{view.name} is a view: {travel} goes with a table")
        return self.view_rows(view)

    # Views

    def within(self, view: Viewed) -> Context | None:
        """Return the context in which a view's query runs; None if the view reads itself."""
        name = view.name.lower()
        if name in self._within:
            return None
        tables = self.tables.in_database(view.database)
        return replace(self, tables=tables, _within=(*self._within, name))

    def view_rows(self, view: Viewed) -> DataFrame:
        """Return the rows of a view's query in this transaction.

        Raises InvalidRequest if the view reads itself, its query no longer gives the view's
        columns, or a setting of the session changes what the stored query means.
        """
        if view.entry is not None:
            self.rules.check_stored(view.query.text, f"view {view.name}")
        inside = self.within(view)
        if inside is None:
            way = " reads ".join((*self._within, view.name.lower()))
            raise InvalidRequest(f"view {view.name} can't be read: {way}, a circle")
        frame = inside.query(view.query)
        if view.schema is not None:
            return self.plane.with_view_columns(view.name, frame, view.schema)
        return self.named(view, frame)

    def named(self, view: Viewed, frame: DataFrame) -> DataFrame:
        """Return the rows of a view's query under the view's column names, if the view has its own.

        Raises InvalidRequest when the query has another number of columns.
        """
        if not view.columns:
            return frame
        if len(view.columns) != len(frame.columns):
            raise InvalidRequest(
                f"view {view.name} has {len(view.columns)} columns ({', '.join(view.columns)}), "
                f"its query {len(frame.columns)} ({', '.join(frame.columns)}); name as many: "
                "CREATE OR REPLACE VIEW"
            )
        return frame.toDF(*view.columns)

    def _hides_files(self, reference: Reference) -> bool:
        """Return whether `_metadata` of a table is Spark's hidden column, not one of its own."""
        has_no_files = reference.description is not None or reference.changes is not None
        handle = None if has_no_files else self.tables.find(reference.table)
        if handle is None or not self.tables.exists(handle):
            return False
        return self.snapshot(handle, reference.travel).schema.find(metadata_column.COLUMN) is None

    def described(self, statement: Inspection) -> Rows:
        """Return the rows of a statement that inspects a table: DESCRIBE, SHOW.

        Raises InvalidRequest if there is no table, for the history of a table that this transaction
        creates, and as `describe`.
        """
        handle = self.tables.require(statement.table)
        if isinstance(statement, DescribeHistory):
            self.require_history(handle)
        snapshot = self.snapshot(handle).in_zone(self.zone)
        return describe(statement, snapshot, handle.log, is_managed=handle.is_managed)

    def catalog_view(self, parts: tuple[str, ...]) -> Rows | None:
        """Return the present rows of one of the system views; None if the name means none of them.

        Raises InvalidRequest for the name of a system view where another system's catalog has the
        names.
        """
        if not self.engine.catalog.is_lake:
            if self.engine.catalog.has_names and view_named(parts) is not None:
                self.engine.catalog.of_lake()  # raises
            return None
        if len(parts) > 2 and parts[0].lower() in self.engine.lake_names:
            parts = parts[1:]
        entries = CatalogEntrySource(
            self.engine.catalog.of_lake(),
            self._shape_of,
            own=self.transaction.session_number,
            kept_by=partial(kept_alone, self.engine),
        )
        return rows_of(parts, entries)

    def _shape_of(self, entry: TableEntry) -> Snapshot | None:
        return self.engine.at_entry(entry).log.latest_or_none()

    def bound(self, schema: Struct, text: str, names: tuple[str, ...]) -> Predicate | None:
        """Return a condition over a table's columns as a predicate; None if it can't be modelled.

        That includes conditions with syntax errors, unknown columns, or another spelling of a
        column where the session is case-sensitive. `names` may qualify the columns.
        """
        try:
            predicate = parse_predicate(text, aliases=names, rules=self.rules)
            if not has_schema_spelling(predicate, schema, self.rules):
                return None
            return bind(predicate, schema, time_zone=self.zone)
        except InvalidRequest:
            return None

    def _view(self, reference: Reference) -> str | None:
        """Create a temporary view of a reference's rows and return its name; None for a name of
        Spark's.
        """
        frame = self._referenced(reference)
        if frame is None:
            return None
        return self.view_of(frame)

    def view_of(self, frame: DataFrame) -> str:
        """Create a temporary view of the rows, which `close` drops, and return its name."""
        name = f"{OWN_VIEW}{self.engine.system.new_id().replace('-', '')}"
        self.plane.make_view(name, frame)
        self._views.append(name)
        return name
