"""What a lake, a session and a transaction can all be asked: SQL, reads, writes, tables.

Owns the arguments of those methods; the statements made of them are carried out by `session`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from txlake.commit.data_plane import ResultRows
from txlake.errors import InvalidRequest
from txlake.lake.tables import DeltaTable
from txlake.lake.tables.expressions import condition_of
from txlake.lake.times import timestamp_text
from txlake.log.snapshot import Snapshot
from txlake.session.command import AsRows, R
from txlake.session.session import Session
from txlake.session.transaction import Transaction as Held
from txlake.session.unknown_names import unknown_table
from txlake.sql import parse
from txlake.sql.statements import (
    ChangeRange,
    NativeFrame,
    QueryReader,
    ReadChanges,
    Select,
    Statement,
    Table,
    TablePath,
    TimeTravel,
    Write,
    table_of,
)

if TYPE_CHECKING:
    import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

Mode = Literal["error", "append", "overwrite", "ignore"]
PartitionOverwrite = Literal["static", "dynamic"]


class Statements:
    """What a lake, a session and a transaction can all be asked."""

    _session: Session

    def _held(self) -> Held | None:
        """The transaction that statements run in; None for the session's own."""
        return None

    def _beside(self, method: str) -> None:
        """A method is called; a session warns where a transaction's own was probably meant."""

    def _run(self, statement: Statement) -> DataFrame:
        return self._session.execute_in(self._held_or_current(), statement)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What can't even be understood fails the open transaction as a failed statement does."""
        try:
            yield
        except BaseException as error:
            held = self._held() or self._session.current
            if held is not None:
                held.fail(error)
            raise

    def sql(
        self, text: str, args: Mapping[str, object] | Sequence[object] | None = None
    ) -> DataFrame:
        """Runs SQL: one statement, or several separated by `;`, whose last result is returned.

        A query gives its rows; INSERT, UPDATE, DELETE and MERGE one row of counts
        (`num_affected_rows`, ...). `args` are the values of `:name` or `?` markers.

        Raises InvalidRequest that points at the place in the text that isn't understood, or says
        what the statement can't do; LockTimeout or Deadlock for a lock that isn't granted;
        UnsupportedFeature for a table that txlake doesn't read or write. A change outside of a
        transaction raises also as `Transaction.commit`.
        """
        self._beside("sql")
        plane = self._session.engine.plane
        return self._answered(text, args, plane, reader=plane.relations)

    def _answered(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None,
        by: ResultRows[R],
        *,
        reader: QueryReader | None = None,
    ) -> R | DataFrame:
        """The answer of SQL's last statement; what no query gives is made `by` this.

        `reader`: of queries that are valid in Spark alone; without it they aren't understood.
        """
        plane = self._session.engine.plane
        with self._asked():
            rules = plane.text_rules
            statements = parse(text, args, rules, reader=reader)
            if not statements:
                raise InvalidRequest("expected a SQL statement, found no text")
        result: R | DataFrame | None = None
        for place in range(len(statements)):
            if place and (current := plane.text_rules) != rules:  # by SET before it
                rules = current
                with self._asked():
                    statements = parse(text, args, rules, reader=reader)
            statement: Statement = statements[place]
            if isinstance(statement, Select) and isinstance(by, AsRows):
                statement = replace(statement, as_values=True)
            result = self._session.answer_in(self._held_or_current(), statement)(by)
        assert result is not None
        return result

    def _held_or_current(self) -> Held | None:
        held = self._held()
        return self._session.current if held is None else held

    def read(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: str | datetime.datetime | None = None,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """The rows of a table, now or as they were at a version or timestamp.

        Files that hold no row for which `where` is true are not read.

        Raises InvalidRequest when there is no such table, version or column, UnsupportedFeature for
        a table that txlake doesn't read, CorruptTable for a damaged log, and Unavailable when the
        store or the catalog can't be reached.
        """
        self._beside("read")
        with self._asked():
            named = named_table(table)
            travel = _travel(table, version, timestamp)
            condition = condition_of(where, (), "where")
        return self._session.read(named, travel, condition, columns, transaction=self._held())

    def changes(
        self,
        table: str,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: str | datetime.datetime | None = None,
        to_timestamp: str | datetime.datetime | None = None,
    ) -> DataFrame:
        """The change data feed of a table: each row that was inserted, deleted or updated.

        Both ends belong to it; without an end it goes to the newest version, in a transaction to
        the one that it reads. The columns are the table's at the last version, then
        `_change_type` (`insert`, `delete`, `update_preimage`, `update_postimage`),
        `_commit_version` and `_commit_timestamp`. The same as SQL's `table_changes`.

        Raises InvalidRequest where a version has no feed (`delta.enableChangeDataFeed`), was
        cleaned up, or isn't there; for a change of the schema that can't be shown; and as `read`.
        """
        self._beside("changes")
        with self._asked():
            named = named_table(table)
            first = _end(table, "from", from_version, from_timestamp)
            if first is None:
                raise InvalidRequest(
                    f"{table}: changes from which version on? Give from_version or from_timestamp"
                )
            asked = ChangeRange(first, _end(table, "to", to_version, to_timestamp))
        return self._run(ReadChanges(named, asked))

    def write(
        self,
        df: object,
        table: str,
        mode: Mode = "error",
        *,
        partition_by: str | Sequence[str] | None = None,
        replace_where: str | Column | None = None,
        overwrite_schema: bool = False,
        merge_schema: bool = False,
        partition_overwrite: PartitionOverwrite = "static",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> None:
        """Writes rows by column name, creating the table where there is none.

        Args:
            df: a DataFrame of Spark, pandas, pyarrow or polars.
            table: a name or a place.
            mode: what an existing table means: "error", "append", "overwrite" or "ignore".
            partition_by: the partition columns of a new table.
            replace_where: with "overwrite": only rows for which this is true are replaced, and
                every new row must match it.
            overwrite_schema: with "overwrite": the rows' schema and `partition_by` replace the
                table's; without `partition_by` it isn't partitioned any more.
            merge_schema: columns that the table doesn't have are added to it.
            partition_overwrite: "dynamic" with "overwrite": only partitions that the rows fall
                into are replaced.
            app_id, app_version: written once per pair, however often it is retried.

        Raises InvalidRequest for rows that don't fit the table or its constraints, and for a table
        that `mode` doesn't expect; UnsupportedFeature for a table that txlake doesn't write; a
        Conflict when `df` shows rows that others changed since. Outside of a transaction it raises
        also as `Transaction.commit`.
        """
        self._beside("write")
        with self._asked():
            one_of(Mode, "mode", mode)
            one_of(PartitionOverwrite, "partition_overwrite", partition_overwrite)
            partitions = partition_by
            if isinstance(partitions, str):
                partitions = (partitions,)
            statement = Write(
                table=named_table(table),
                source=NativeFrame(df),
                mode=mode,
                partition_by=None if partitions is None else tuple(partitions),
                replace_where=condition_of(replace_where, (), "replace_where"),
                # "static" is also what isn't said: the session's setting counts then.
                dynamic_partition_overwrite=partition_overwrite == "dynamic" or None,
                overwrite_schema=overwrite_schema,
                merge_schema=merge_schema or None,
                app_id=app_id,
                app_version=app_version,
            )
        self._session.carry_out(self._held() or self._session.current, statement)

    def table(self, table: str) -> DeltaTable:
        """The table as a DeltaTable. Raises InvalidRequest when there is none.

        It runs no statement: a transaction goes on when there is no such table.
        """
        self._beside("table")
        named = named_table(table)
        executor = Executor(self._session, self._held())
        if not executor.exists(named):
            raise self._missing(named)
        return DeltaTable(executor, named)

    def _missing(self, table: Table) -> InvalidRequest:
        session = self._session
        if isinstance(table, TablePath):
            return InvalidRequest(
                f"{table.location} is not a Delta table; check the path, or create the table first"
            )
        return unknown_table(session.engine, self._held(), session.database, table)


def named_table(table: str) -> Table:
    """The table that a call names. Raises InvalidRequest for what is no name and no place."""
    if not isinstance(table, str):
        raise InvalidRequest(f"expected a table's name or place, found {table!r}")
    return table_of(table)


def _travel(
    table: str, version: int | None, timestamp: str | datetime.datetime | None
) -> TimeTravel | None:
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"{table}: give version or timestamp, not both")
    if version is not None:
        if type(version) is not int:
            raise InvalidRequest(f"{table}: version: expected a number, found {version!r}")
        return TimeTravel(version=version)
    return None if timestamp is None else TimeTravel(timestamp=timestamp_text(timestamp))


def _end(
    table: str, side: str, version: int | None, timestamp: str | datetime.datetime | None
) -> TimeTravel | None:
    """One end of a range of versions; None where it isn't given."""
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"{table}: give {side}_version or {side}_timestamp, not both")
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidRequest(
            f"{table}: {side}_version: expected a whole number, 0 or more, found {version!r}"
        )
    return _travel(table, version, timestamp)


def one_of(kinds: object, name: str, value: str) -> None:
    """Raises InvalidRequest unless the value is one of a Literal's."""
    if value not in get_args(kinds):
        *most, last = map(repr, get_args(kinds))
        raise InvalidRequest(f"{name}={value!r}: expected {', '.join(most)} or {last}")


class Executor:
    """Statements for DeltaTable, in a transaction or in the session's own."""

    def __init__(self, session: Session, transaction: Held | None) -> None:
        self._session = session
        self._transaction = transaction

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._session.spark

    def execute(self, statement: Statement) -> DataFrame:
        """Carries the statement out."""
        if self._transaction is None:
            return self._session.execute(statement)
        return self._session.execute_in(self._transaction, statement)

    def frame(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """The table's rows."""
        return self._session.frame(table, travel, transaction=self._transaction)

    def snapshot(self, table: Table, travel: TimeTravel | None = None) -> Snapshot:
        """The table's state."""
        return self._session.snapshot(table, travel, transaction=self._transaction)

    def glance(self, table: Table) -> Snapshot | None:
        """The table's state; None in an open transaction, which a look that fails would fail."""
        return None if self._transaction is not None else self._session.glance(table)

    def exists(self, table: Table) -> bool:
        """Whether there is such a table."""
        return self._session.exists(table, transaction=self._transaction)
