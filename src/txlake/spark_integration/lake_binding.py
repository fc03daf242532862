"""The binding of a Spark session to a lake's session, and the resolution of names there.

Names resolve as in Spark: where rows are read, a temporary view of the session comes first, then
the lake's tables and views, then the tables of Spark's own catalog.
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
from txlake.lake.tables.enabled_sessions import enabled_session
from txlake.lake.tables.errors import refusal
from txlake.lake.tables.session_lookup import path_session
from txlake.log.text_rules import TextRules
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.unknown_names import unknown_table
from txlake.session.views import view_named
from txlake.spark.full_names import alias_by_full_name
from txlake.spark.plane import temporary_views
from txlake.spark.spark_sessions import default_file_system
from txlake.sql import parse
from txlake.sql.statements import (
    Statement,
    Table,
    TableName,
    TablePath,
    TimeTravel,
    quoted,
    table_of,
)

_SPARK_CATALOG = "spark_catalog"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class NameKind(Enum):
    """The kind of object that a name has in the lake."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class LakeBinding:
    """An enabled Spark session, and the lake's session that carries out its statements."""

    spark: SparkSession
    session: Session

    @property
    def text_rules(self) -> TextRules:
        """The session's settings for reading SQL text."""
        return self.session.engine.plane.text_rules

    @property
    def engine(self) -> Engine:
        """The engine with the names of the branch, or main, that statements use now.

        Raises InvalidRequest as `Session.follow_setting`.
        """
        self.session.follow_setting()
        return self.session.engine

    # Names

    def kind_of(self, table: Table) -> NameKind | None:
        """Return what the lake has under a name or at a path; None for nothing.

        A system view counts as a view; a temporary view is none of the lake's.
        """
        if isinstance(table, TablePath):
            return NameKind.TABLE if self.session.exists(table) else None
        if not self.may_be_in_lake(table):
            return None
        self.session.follow_setting()
        with self.session.statement_context(self.session.current, [], pins=False) as context:
            if context.tables.find(table) is not None:
                return NameKind.TABLE
            view = context.tables.viewed(table)
            is_own = view is not None and view.entry is not None
            return NameKind.VIEW if is_own or view_named(table.parts) is not None else None

    def may_be_in_lake(self, table: TableName) -> bool:
        """Return whether a name can be the lake's.

        False for a name of another catalog and of a global temporary view.
        """
        first = table.parts[0].lower()
        if first == "global_temp":
            return False
        return len(table.parts) < 3 or first in self.session.engine.lake_names

    def is_temporary(self, table: Table) -> bool:
        """Return whether the Spark session has a temporary view of this name."""
        if not isinstance(table, TableName) or len(table.parts) > 1:
            return False
        name = table.name.lower()
        return name in self.temporary_names((name,))

    def temporary_names(self, names: Collection[str]) -> frozenset[str]:
        """Return which of the names are temporary views of the Spark session, in lower case."""
        return frozenset(name.lower() for name in temporary_views(self.spark, names))

    def is_planned_view(self, table: TableName) -> bool:
        """Return whether the lake plans the query of the view of this name at each use.

        It does for views of the lake, and for temporary views that read the lake's tables; not for
        a name that is no view's.
        """
        if self.session.engine.temporary_view(table) is not None:
            return True
        return self.kind_of(table) is NameKind.VIEW

    def spark_has(self, table: Table) -> bool:
        """Return whether the Spark session itself has a table or view of that name.

        A name without a database is that of a temporary view, or belongs to the lake's current
        database, which may differ from Spark's. False for paths.
        """
        return isinstance(table, TableName) and self.spark_resolves(self._in_spark(table))

    def spark_resolves(self, table: TableName) -> bool:
        """Return whether Spark resolves the name by its own current database."""
        try:
            return self.spark.catalog.tableExists(str(table))
        except PySparkException:
            return False  # a name that is invalid to Spark

    def spark_name(self, name: str) -> str:
        """Return a name for Spark that resolves to the same table as the program's name.

        A text that is no name is returned as it is.
        """
        try:
            table = table_of(name)
        except InvalidRequest:
            return name  # Spark raises its own error
        if not isinstance(table, TableName) or not self.resolves_differently(table):
            return name
        return str(self._in_spark(table))

    def resolves_differently(self, table: TableName) -> bool:
        """Return whether Spark resolves a name in another database than the lake does.

        True for a name without a database while the current databases of the two differ.
        """
        if len(table.parts) > 1:
            return False
        return self.spark.catalog.currentDatabase().lower() != self.session.database.lower()

    def _in_spark(self, table: TableName) -> TableName:
        """Return a name that Spark would resolve elsewhere, in the lake's current database.

        Any other name is returned as it is.
        """
        if not self.resolves_differently(table) or self.is_temporary(table):
            return table
        return TableName((self.session.database, table.name))

    def require_qualified(self, table: Table) -> None:
        """Raise InvalidRequest for a name that Spark resolves in another database than the lake.

        Paths and temporary views pass.
        """
        if (
            isinstance(table, TableName)
            and self.resolves_differently(table)
            and not self.is_temporary(table)
        ):
            full = TableName((self.session.database, table.name))
            raise InvalidRequest(
                f"{table} means {full}, which is in Spark's own catalog, whose current "
                f"database is {self.spark.catalog.currentDatabase()}: write {full}"
            )

    def require_resolvable_path(self, table: Table) -> None:
        """Raise InvalidRequest for a path that Hadoop resolves in another file system.

        A path without a scheme is local in txlake.
        """
        if not isinstance(table, TablePath) or _SCHEME.match(table.location):
            return
        url = default_file_system(self.spark)
        if not url.lower().startswith("file:"):
            raise InvalidRequest(
                f"{table.location} has no scheme, and fs.defaultFS of the Spark session is {url}: "
                f"write it out, as in {url.rstrip('/')}/folder or file:///folder"
            )

    def require_creatable(self, table: Table) -> None:
        """Raise InvalidRequest if a writer must not create this table in the lake.

        That is in a database that the lake doesn't have, and if the new table would hide one of
        Spark's own. Existing tables and paths pass.
        """
        if not isinstance(table, TableName) or self.kind_of(table) is not None:
            return
        owner, _ = self.session.engine.qualified(table, self.session.database)
        if self.session.engine.catalog.of_lake().database(owner) is None:
            raise refusal(
                "SCHEMA_NOT_FOUND",
                f"there is no database {owner!r} in the lake; CREATE DATABASE {owner} makes it",
            )
        if self.spark_has(table) and not self.is_temporary(table):
            raise refusal(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a table of Spark's own, which a table of the lake would hide: choose "
                "another name, or drop it first",
            )

    def full_name(self, table: Table) -> tuple[str, str, str]:
        """Return the qualifier of a lake table's columns in Spark: catalog, database, table."""
        if not isinstance(table, TableName):
            return _SPARK_CATALOG, "delta", table.location
        owner, _ = self.session.engine.qualified(table, self.session.database)
        return table.parts[0] if len(table.parts) > 2 else _SPARK_CATALOG, owner, table.name

    def not_found(self, table: TableName) -> InvalidRequest:
        """Return the error for a name that neither the lake nor Spark has."""
        session = self.session
        if not self.may_be_in_lake(table):
            message = f"there is no table or view {table}"
        else:
            message = str(unknown_table(session.engine, session.current, session.database, table))
        return refusal("TABLE_OR_VIEW_NOT_FOUND", message)

    # Statements

    def read(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """Return the rows of a table or view; they count as a read of the version returned.

        Columns can be qualified by the table's full name. Raises InvalidRequest if there is none.
        """
        if isinstance(table, TableName) and travel is None and self.is_planned_view(table):
            text = "SELECT * FROM " + ".".join(quoted(part, always=True) for part in table.parts)
            [query] = parse(text)
            rows = self.session.execute(query)
        else:
            rows = self.session.read(table, travel)
        # Programs qualify the columns of a table read by name: `t.id` or `db.t.id`.
        return alias_by_full_name(rows, self.full_name(table))

    def carry_out(self, statement: Statement, *, user_metadata: str | None = None) -> None:
        """Carry out a statement without returning its result."""
        current = self.session.current
        self.session.carry_out(current, statement, user_metadata=user_metadata)

    @contextmanager
    def fail_on_error(self) -> Iterator[None]:
        """Fail the session's open transaction on an error in the block, as a failed statement does.

        That is a TxlakeError or one of PySpark's, which is raised on.
        """
        try:
            yield
        except (TxlakeError, PySparkException) as error:
            self.session.fail(error)
            raise

    def run_in_spark(self, call: Callable[[], DataFrame]) -> DataFrame:
        """Return the result of a call to Spark; its error fails the open transaction."""
        with self.fail_on_error():
            return call()


def binding_of(spark: SparkSession) -> LakeBinding | None:
    """Return the binding of a Spark session; None for one that isn't enabled."""
    enabled = enabled_session(spark)
    return None if enabled is None else LakeBinding(spark, enabled.session)


def session_for(binding: LakeBinding, table: Table, storage: Mapping[str, str]) -> Session:
    """Return the session for a table: the lake's, or one with the credentials in `storage`.

    The credentials of a reader or writer apply only to path tables; for the lake's tables, and if
    empty, the session is the lake's.
    """
    if not storage or isinstance(table, TableName):
        return binding.session
    handle = binding.session.engine.find(table, binding.session.database)
    if handle is not None and handle.in_lake:
        return binding.session
    return path_session(binding.spark, storage)
