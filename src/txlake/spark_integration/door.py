"""A door: one Spark session, the lake's session behind it, and what a name means there.

A name is looked for as Spark does it: a temporary view of the session comes first, where rows are
read; then the lake's tables and views; then the tables of Spark's own catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.text_rules import TextRules
from txlake.session.session import Session
from txlake.session.unknown_names import unknown_table
from txlake.spark.full_names import alias_by_full_name
from txlake.spark.plane import temporary_views
from txlake.spark.spark_sessions import default_file_system
from txlake.sql import parse
from txlake.statements import (
    Statement,
    Table,
    TableName,
    TablePath,
    TimeTravel,
    quoted,
    table_of,
)
from txlake.tables.enabled import enabled_in
from txlake.tables.errors import refused
from txlake.tables.spark_sessions import for_spark
from txlake.views import view_named

_SPARK_CATALOG = "spark_catalog"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Meaning(Enum):
    """What a name is to the lake."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Door:
    """A Spark session that was given to a lake, and the lake's session that works for it."""

    spark: SparkSession
    session: Session

    @property
    def text_rules(self) -> TextRules:
        """How the session reads SQL text."""
        return self.session.engine.plane.text_rules

    # Names

    def meaning(self, table: Table) -> Meaning | None:
        """What the lake has under a name, or at a place; None for nothing."""
        if isinstance(table, TablePath):
            return Meaning.TABLE if self.session.exists(table) else None
        if not self.may_be_of_lake(table):
            return None
        with self.session.statement_context(self.session.current, [], pins=False) as context:
            if context.find(table) is not None:
                return Meaning.TABLE
            found = context.viewed(table)
            is_own = found is not None and found.entry is not None
            return Meaning.VIEW if is_own or view_named(table.parts) is not None else None

    def may_be_of_lake(self, table: TableName) -> bool:
        """Whether a name isn't one of another catalog, nor of a global temporary view."""
        first = table.parts[0].lower()
        if first == "global_temp":
            return False
        return len(table.parts) < 3 or first in self.session.engine.lake_names

    def is_temporary(self, table: Table) -> bool:
        """Whether a name is a temporary view's of the Spark session."""
        if not isinstance(table, TableName) or len(table.parts) > 1:
            return False
        name = table.name.lower()
        return name in self.temporary_names((name,))

    def temporary_names(self, asked: Collection[str]) -> frozenset[str]:
        """Which of these names, in lower case, are temporary views' of the Spark session."""
        found = temporary_views(self.spark, asked)
        return frozenset(name.lower() for name in found)

    def is_planned(self, table: TableName) -> bool:
        """Whether a name is a view's whose query the lake plans where it is used."""
        if self.session.engine.temporary_view(table) is not None:
            return True
        return self.meaning(table) is Meaning.VIEW

    def spark_has(self, table: Table) -> bool:
        """Whether the Spark session has a table or view of that name, of its own.

        A name without a database is a temporary view's, or of the lake's current database: Spark's
        own may be another one.
        """
        return isinstance(table, TableName) and self.spark_finds(self._in_spark(table))

    def spark_finds(self, table: TableName) -> bool:
        """Whether Spark would find a table or view of that name where it looks by itself."""
        try:
            return self.spark.catalog.tableExists(str(table))
        except PySparkException:
            return False  # a name that Spark doesn't take

    def for_spark(self, name: str) -> str:
        """The name that Spark is to be told for what the program named so."""
        try:
            table = table_of(name)
        except InvalidRequest:
            return name  # Spark says what it expects
        if not isinstance(table, TableName) or not self.is_short(table):
            return name
        return str(self._in_spark(table))

    def is_short(self, table: TableName) -> bool:
        """Whether Spark would look for a name elsewhere than the lake does.

        It has no database, and the current one of the lake isn't Spark's.
        """
        if len(table.parts) > 1:
            return False
        return self.spark.catalog.currentDatabase().lower() != self.session.database.lower()

    def _in_spark(self, table: TableName) -> TableName:
        if not self.is_short(table) or self.is_temporary(table):
            return table
        return TableName((self.session.database, table.name))

    def require_full(self, table: Table) -> None:
        """Raises an AnalysisException for a name that Spark would look for elsewhere."""
        if isinstance(table, TableName) and self.is_short(table) and not self.is_temporary(table):
            full = TableName((self.session.database, table.name))
            raise InvalidRequest(
                f"{table} stands for {full}, which is for Spark's own catalog, whose current "
                f"database is {self.spark.catalog.currentDatabase()}: say {full}"
            )

    def require_place(self, table: Table) -> None:
        """Raises an AnalysisException for a path that Hadoop takes to be of another file system.

        A path without a scheme is a local one here.
        """
        if not isinstance(table, TablePath) or _SCHEME.match(table.location):
            return
        url = default_file_system(self.spark)
        if not url.lower().startswith("file:"):
            raise InvalidRequest(
                f"{table.location} has no scheme, and fs.defaultFS of the Spark session is {url}: "
                f"write it out, as in {url.rstrip('/')}/folder or file:///folder"
            )

    def require_makeable(self, table: Table) -> None:
        """Raises an AnalysisException where a writer may not make the lake's table of that name.

        In a database that the lake doesn't have, and in front of a table of Spark's own, which
        nobody would find any more.
        """
        if not isinstance(table, TableName) or self.meaning(table) is not None:
            return
        owner, _ = self.session.engine.qualified(table, self.session.database)
        if self.session.engine.catalog.of_lake().database(owner) is None:
            raise refused(
                "SCHEMA_NOT_FOUND",
                f"there is no database {owner!r} in the lake; CREATE DATABASE {owner} makes it",
            )
        if self.spark_has(table) and not self.is_temporary(table):
            raise refused(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a table of Spark's own, which a table of the lake would hide: choose "
                "another name, or drop it first",
            )

    def full_name(self, table: Table) -> tuple[str, str, str]:
        """What Spark has before the columns of a lake's table: catalog, database, table."""
        if not isinstance(table, TableName):
            return _SPARK_CATALOG, "delta", table.location
        owner, _ = self.session.engine.qualified(table, self.session.database)
        return table.parts[0] if len(table.parts) > 2 else _SPARK_CATALOG, owner, table.name

    def unknown(self, table: TableName) -> InvalidRequest:
        """The error for a name that neither the lake nor Spark has."""
        session = self.session
        if not self.may_be_of_lake(table):
            told = f"there is no table or view {table}"
        else:
            told = str(unknown_table(session.engine, session.current, session.database, table))
        return refused("TABLE_OR_VIEW_NOT_FOUND", told)

    # Work

    def read(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """A table's rows, or a view's; they count as a read of the version that they show."""
        if isinstance(table, TableName) and travel is None and self.is_planned(table):
            text = "SELECT * FROM " + ".".join(quoted(part, always=True) for part in table.parts)
            [query] = parse(text)
            rows = self.session.execute(query)
        else:
            rows = self.session.read(table, travel)
        # Programs say `t.id`, or `db.t.id`, of what they read by its name.
        return alias_by_full_name(rows, self.full_name(table))

    def carry_out(self, statement: Statement, *, user_metadata: str | None = None) -> None:
        """Carries a statement out whose answer nobody asks for."""
        current = self.session.current
        self.session.carry_out(current, statement, user_metadata=user_metadata)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What can't even be understood fails the open transaction as a failed statement does."""
        try:
            yield
        except (TxlakeError, PySparkException) as error:
            self.session.fail(error)
            raise

    def from_spark(self, call: Callable[[], DataFrame]) -> DataFrame:
        """What Spark itself answers; its failure is one of the open transaction."""
        with self.asked():
            return call()


def door_of(spark: SparkSession) -> Door | None:
    """The door of a Spark session; None for one that isn't enabled."""
    enabled = enabled_in(spark)
    return None if enabled is None else Door(spark, enabled.session)


def session_for(door: Door, table: Table, storage: Mapping[str, str]) -> Session:
    """The session that works on a table: the lake's, or one with credentials of its own.

    Credentials that a reader or writer is given count for tables that aren't the lake's.
    """
    if not storage or isinstance(table, TableName):
        return door.session
    found = door.session.engine.find(table, door.session.database)
    if found is not None and found.in_lake:
        return door.session
    return for_spark(door.spark, storage)
