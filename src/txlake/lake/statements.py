"""The methods that a lake, a session and a transaction share: SQL, reads, writes, tables.

Owns the arguments of those methods; `session` carries out the statements made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from txlake.commit.data_plane import ResultRows
from txlake.errors import InvalidRequest
from txlake.lake.read_versions import named_table, versions_of_script, versions_read
from txlake.lake.tables import DeltaTable
from txlake.lake.tables.expressions import condition_of
from txlake.lake.times import timestamp_text
from txlake.log.snapshot import Snapshot
from txlake.session.command import Answer, AsRows, R
from txlake.session.session import Session
from txlake.session.transaction import Transaction as SessionTransaction
from txlake.session.unknown_names import unknown_table
from txlake.session.versions_read import VersionRead, begin_at_versions, locks_of
from txlake.sql import parse
from txlake.sql.statements import (
    ChangeRange,
    NativeFrame,
    QueryReader,
    ReadChanges,
    ReadTable,
    Select,
    Statement,
    Table,
    TablePath,
    TimeTravel,
    Write,
)
from txlake.sql.statements.branches import branch_name

if TYPE_CHECKING:
    import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

Mode = Literal["error", "append", "overwrite", "ignore"]
PartitionOverwrite = Literal["static", "dynamic"]


class Statements:
    """The statements that a lake, a session and a transaction carry out: SQL, reads, writes."""

    _session: Session

    def _own_transaction(self) -> SessionTransaction | None:
        """Return the transaction that statements run in; None for the session's current one."""
        return None

    def _warn_beside(self, method: str) -> None:
        """Warn, in a session, that a method is called where a transaction's was probably meant."""

    def _run(self, statement: Statement) -> DataFrame:
        return self._session.execute_in(self._own_or_current(), statement)

    @contextmanager
    def _failing_on_error(self) -> Iterator[None]:
        """Fail the open transaction, if there is one, when the block raises."""
        try:
            yield
        except BaseException as error:
            held = self._own_transaction() or self._session.current
            if held is not None:
                held.fail(error)
            raise

    def sql(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None = None,
        *,
        read_version: int | Mapping[str, int] | None = None,
        reads: str | Column | Mapping[str, str | Column] | None = None,
    ) -> DataFrame:
        """Run SQL: one statement, or several separated by `;`; return the result of the last.

        The result of a query is its rows; of INSERT, UPDATE, DELETE and MERGE one row of counts
        (`num_affected_rows`, ...). `args` are the values of `:name` or `?` markers.

        `read_version` is a version that was read elsewhere, of the table that the text's only
        statement changes, or versions by table: the statement reads these tables at these versions,
        and later commits are judged as concurrent ones. `reads`: a condition, or conditions by
        table, for the rows that were read there. Without it UPDATE, DELETE, MERGE and OPTIMIZE
        count as having read of their table what they read themselves; every other table counts as
        read as a whole, and so does the table of an INSERT.

        Raises InvalidRequest for a text that can't be parsed, with the position, for a version that
        the table doesn't have, and for a statement that can't be carried out; LockTimeout or
        Deadlock for a lock that isn't granted; UnsupportedFeature for a table that txlake doesn't
        read or write. A change outside of a transaction raises also as `Transaction.commit`.
        """
        self._warn_beside("sql")
        plane = self._session.engine.plane
        parsed: Sequence[Statement] | None = None
        versions: Sequence[VersionRead] = ()
        if read_version is not None or reads is not None:
            with self._failing_on_error():
                parsed = parse(text, args, plane.text_rules, reader=plane.relations)
                versions = versions_of_script(parsed, read_version, reads)
        return self._run_sql(
            text, args, plane, reader=plane.relations, parsed=parsed, versions_read=versions
        )

    def _run_sql(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None,
        by: ResultRows[R],
        *,
        reader: QueryReader | None = None,
        parsed: Sequence[Statement] | None = None,
        versions_read: Sequence[VersionRead] = (),
    ) -> R | DataFrame:
        """Run SQL as `sql` does; `by` makes the rows of results that no query returns.

        `reader` finds the tables of queries that only Spark can parse; without it they are refused.
        `parsed`: the text's statements, where the caller has parsed it by the session's rules.
        `versions_read`: of the only statement.
        """
        with self._session.engine.plane.settings_held():
            return self._run_statements(text, args, by, reader, parsed, versions_read)

    def _run_statements(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None,
        by: ResultRows[R],
        reader: QueryReader | None,
        parsed: Sequence[Statement] | None,
        versions_read: Sequence[VersionRead],
    ) -> R | DataFrame:
        """Run SQL as `_run_sql` does."""
        plane = self._session.engine.plane
        with self._failing_on_error():
            rules = plane.text_rules
            statements = parsed or parse(text, args, rules, reader=reader)
            if not statements:
                raise InvalidRequest("expected a SQL statement, found no text")
        result: R | DataFrame | None = None
        for place in range(len(statements)):
            if place and (current := plane.text_rules) != rules:  # by SET before it
                rules = current
                with self._failing_on_error():
                    statements = parse(text, args, rules, reader=reader)
            statement: Statement = statements[place]
            if isinstance(statement, Select) and isinstance(by, AsRows):
                statement = replace(statement, as_values=True)
            result = self._session.answer_in(
                self._own_or_current(), statement, versions_read=versions_read
            )(by)
        assert result is not None
        return result

    def _own_or_current(self) -> SessionTransaction | None:
        """Return the transaction that statements run in: this object's, or else the session's
        current one; None for a transaction of their own.
        """
        held = self._own_transaction()
        return self._session.current if held is None else held

    def read(
        self,
        table: str,
        *,
        version: int | str | None = None,
        timestamp: str | datetime.datetime | None = None,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return the rows of a table, at its newest or an earlier version or a timestamp.

        Only rows for which `where` is true; files without any are not read. In a transaction the
        newest version is the one that the transaction sees. The name of a branch or a tag as
        `version` reads what the table is there. A timestamp without a zone is in the Spark
        session's.

        Raises InvalidRequest when there is no such table, version or column, UnsupportedFeature for
        a table that txlake doesn't read, CorruptTable for a damaged log, and Unavailable when the
        store or the catalog can't be reached.
        """
        self._warn_beside("read")
        with self._failing_on_error():
            named = named_table(table)
            travel = _travel(table, version, timestamp)
            condition = condition_of(where, (), "where")
        return self._session.read(
            named, travel, condition, columns, transaction=self._own_transaction()
        )

    def changes(
        self,
        table: str,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: str | datetime.datetime | None = None,
        to_timestamp: str | datetime.datetime | None = None,
    ) -> DataFrame:
        """Return the change data feed of a table: each row that was inserted, deleted or updated.

        Give `from_version` or `from_timestamp`. The range includes both ends; without an end it
        ends with the newest version, in a transaction with the version that it reads. The columns
        are those of the table at the last version, then `_change_type` (`insert`, `delete`,
        `update_preimage`, `update_postimage`), `_commit_version` and `_commit_timestamp`. As SQL's
        `table_changes`.

        Raises InvalidRequest without a start, and with a version and a timestamp for one end; where
        a version has no feed (`delta.enableChangeDataFeed`), was cleaned up or doesn't exist; for a
        schema change that can't be shown; and as `read`.
        """
        self._warn_beside("changes")
        with self._failing_on_error():
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
        read_version: int | Mapping[str, int] | None = None,
        reads: str | Column | Mapping[str, str | Column] | None = None,
    ) -> None:
        """Write rows by column name; create the table if there is none.

        Args:
            df: a DataFrame of Spark, pandas, pyarrow or polars.
            table: a name, or the path or URL of a path table.
            mode: what is done with an existing table: "error", "append", "overwrite", "ignore".
            partition_by: the partition columns of a new table.
            replace_where: with "overwrite": only rows for which this is true are replaced, and
                every new row must match it.
            overwrite_schema: with "overwrite": the rows' schema and `partition_by` replace the
                table's; without `partition_by` it isn't partitioned any more.
            merge_schema: columns that the table doesn't have are added to it.
            partition_overwrite: "dynamic" with "overwrite": only partitions that the rows fall
                into are replaced. "static" leaves that to the Spark session's setting.
            app_id, app_version: the write is carried out once per pair, and ignored afterwards; so
                are smaller versions of the same id.
            read_version: the version of the table, or the versions by table, that `df` was made
                from elsewhere: commits since then are judged as concurrent ones.
            reads: a condition, or conditions by table, for the rows that were read there; by
                default all rows of these tables.

        Raises InvalidRequest for rows that don't fit the table or its constraints, for a table that
        `mode` doesn't expect, and for a `read_version` that the table doesn't have;
        UnsupportedFeature for a table that txlake doesn't write; a Conflict when `df` shows, or
        `read_version` has, rows that others changed since. Outside of a transaction it raises
        also as `Transaction.commit`.
        """
        self._warn_beside("write")
        with self._failing_on_error():
            one_of(Mode, "mode", mode)
            one_of(PartitionOverwrite, "partition_overwrite", partition_overwrite)
            partitions = partition_by
            if isinstance(partitions, str):
                partitions = (partitions,)
            named = named_table(table)
            versions = versions_read(read_version, reads, lambda: named)
            statement = Write(
                table=named,
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
        self._session.carry_out(self._own_or_current(), statement, versions_read=versions)

    def table(
        self,
        table: str,
        *,
        read_version: int | Mapping[str, int] | None = None,
        reads: str | Column | Mapping[str, str | Column] | None = None,
    ) -> DeltaTable:
        """Return a table as a DeltaTable. Raises InvalidRequest when there is none.

        With `read_version`, a version of the table or versions by table, its `toDF`, `delete`,
        `update`, `merge` and `optimize` are statements that are given this (`sql` says what
        counts as read); its other methods raise InvalidRequest.

        The error doesn't fail an open transaction, since no statement was run, except for versions
        that the transaction can't read.
        """
        self._warn_beside("table")
        named = named_table(table)
        versions = versions_read(read_version, reads, lambda: named)
        held = self._own_or_current()
        if versions and held is not None:
            with self._session.statement_context(held, locks_of(versions)) as context:
                begin_at_versions(context, versions)
        executor = Executor(self._session, self._own_transaction(), versions)
        if not executor.exists(named):
            raise self._missing(named)
        return DeltaTable(executor, named)

    def _missing(self, table: Table) -> InvalidRequest:
        """Return the error for a table that doesn't exist."""
        session = self._session
        if isinstance(table, TablePath):
            return InvalidRequest(
                f"{table.location} is not a Delta table; check the path, or create the table first"
            )
        return unknown_table(session.engine, self._own_transaction(), session.database, table)


def _travel(
    table: str, version: int | str | None, timestamp: str | datetime.datetime | None
) -> TimeTravel | None:
    """Return the version, branch, tag or time to read; None if nothing is given.

    Raises InvalidRequest for both, for values of another type, and for a text that is no name of a
    branch or a tag.
    """
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"{table}: give version or timestamp, not both")
    if version is not None:
        if isinstance(version, str):
            return TimeTravel(branch_or_tag=branch_name(version))
        if type(version) is not int:
            raise InvalidRequest(
                f"{table}: version: expected a number, or the name of a branch or a tag, found "
                f"{version!r}"
            )
        return TimeTravel(version=version)
    return None if timestamp is None else TimeTravel(timestamp=timestamp_text(timestamp))


def _end(
    table: str, side: str, version: int | None, timestamp: str | datetime.datetime | None
) -> TimeTravel | None:
    """Return one end of a range of versions; None if neither argument is given.

    Raises InvalidRequest for both, for a negative version, and for values of another type.
    """
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"{table}: give {side}_version or {side}_timestamp, not both")
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidRequest(
            f"{table}: {side}_version: expected a whole number, 0 or more, found {version!r}"
        )
    return _travel(table, version, timestamp)


def one_of(kinds: object, name: str, value: str) -> None:
    """Raise InvalidRequest unless the value is one of the Literal type `kinds`."""
    if value not in get_args(kinds):
        *most, last = map(repr, get_args(kinds))
        raise InvalidRequest(f"{name}={value!r}: expected {', '.join(most)} or {last}")


class Executor:
    """Runs a DeltaTable's statements in a transaction, or in the session's current one."""

    def __init__(
        self,
        session: Session,
        transaction: SessionTransaction | None,
        versions: Sequence[VersionRead] = (),
    ) -> None:
        self._session = session
        self._transaction = transaction
        self._versions = versions

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._session.spark

    def _answer(self, statement: Statement) -> Answer:
        held = self._session.current if self._transaction is None else self._transaction
        return self._session.answer_in(held, statement, versions_read=self._versions)

    def execute(self, statement: Statement) -> DataFrame:
        """Run a statement and return its rows or counts."""
        return self._answer(statement)(self._session.engine.plane)

    def perform(self, statement: Statement) -> None:
        """Run a statement without making its result, which needs Spark."""
        self._answer(statement)

    def frame(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """Return the table's rows."""
        return self.execute(ReadTable(table=table, travel=travel))

    def snapshot(self, table: Table, travel: TimeTravel | None = None) -> Snapshot:
        """Return the table's snapshot."""
        return self._session.snapshot(table, travel, transaction=self._transaction)

    def glance(self, table: Table) -> Snapshot | None:
        """Return the table's snapshot; None in a transaction, which an error would fail."""
        return None if self._transaction is not None else self._session.glance(table)

    def exists(self, table: Table) -> bool:
        """Return whether the table exists."""
        return self._session.exists(table, transaction=self._transaction)
