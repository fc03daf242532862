"""A cursor: runs statements of its connection's transaction, and gives out their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from txlake.dbapi.exceptions import InterfaceError, ProgrammingError, translated_errors
from txlake.dbapi.fetching import ResultSet, Row
from txlake.dbapi.type_objects import decimal_of
from txlake.sql.markers import Arguments
from txlake.sql.repeated_rows import row_template
from txlake.sql.statements import Select, Statement

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from txlake.dbapi.connection import Connection

Description = tuple[tuple[str, str, None, int | None, int | None, int | None, bool | None], ...]
_COUNT = "num_affected_rows"
# Rows of one INSERT that executemany makes; more are several, in one transaction.
_ROWS_MAX = 5_000


class Cursor:
    """Runs statements, one after the other, and has the last one's rows.

    Attributes:
        arraysize: how many rows `fetchmany` returns by default.
        lastrowid: the last value that the last statement generated in the table's first identity
            column; None if it generated none, and after `executemany`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_closed = False
        self._result: ResultSet | None = None
        self._rowcount = -1
        self.arraysize = 1
        self.lastrowid: int | None = None

    @property
    def connection(self) -> Connection:
        """The connection that made the cursor."""
        return self._connection

    @property
    def description(self) -> Description | None:
        """The columns of the rows: name, type code, two that are None, precision, scale, and
        whether NULL is possible; None without rows.
        """
        if self._result is None:
            return None
        return tuple(
            (item.name, code, None, None, *decimal_of(code), item.nullable)
            for item, code in zip(self._result.schema, self._result.codes)
        )

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed or returned; -1 where that isn't known: for a
        query of Spark, whose rows are read as they are fetched, and for other statements.
        """
        return self._rowcount

    def execute(self, operation: str, parameters: Arguments | None = None) -> Self:
        """Run a statement, or several separated by `;`, of which the last has the rows.

        `parameters`: a sequence for markers `?`, a mapping for markers `:name`. Without autocommit
        the first statement begins a transaction. Returns the cursor.

        Raises InterfaceError if the cursor or connection is closed, NotSupportedError for a
        statement that can't be part of a transaction, and as the lake does, see
        `txlake.dbapi.exceptions`.
        """
        with self._connection._lock:
            self._begin()
            args = _checked(parameters)
            self._settle(*self._connection._run(operation, args))
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Arguments]) -> Self:
        """Run a statement once for each of the parameters, all or none.

        An INSERT of one row of VALUES becomes one write of all rows. `rowcount` is the sum. Raises
        as `execute`, and ProgrammingError for a statement that returns rows.
        """
        with self._connection._lock:
            self._begin()
            given = [_required(parameters) for parameters in seq_of_parameters]
            if not given:
                return self
            with translated_errors():
                template = row_template(operation, given[0])
            with self._connection._together():
                total = 0
                if template is None:
                    for args in given:
                        total += self._changed(operation, args)
                else:
                    for first in range(0, len(given), _ROWS_MAX):
                        with translated_errors():
                            made = template.repeated(given[first : first + _ROWS_MAX])
                        total += self._changed(*made)
            self._rowcount, self.lastrowid = total, None
        return self

    def _changed(self, operation: str, args: Arguments) -> int:
        """Run a statement of `executemany`, and return how many rows it changed."""
        self._settle(*self._connection._run(operation, args))
        if self._result is not None:
            self._result = None
            raise ProgrammingError("executemany is for statements that return no rows; use execute")
        return max(self._rowcount, 0)

    def _begin(self) -> None:
        """Forget the last result. Raises InterfaceError if the cursor or connection is closed."""
        self._require_open()
        self._result, self._rowcount, self.lastrowid = None, -1, None

    def _settle(self, result: ResultSet, statements: Sequence[Statement] | None) -> None:
        """Keep a statement's rows, or the count of the rows that it changed."""
        self.lastrowid = result.identity
        is_query = not statements or isinstance(statements[-1], Select)
        if not is_query and result.schema.names[:1] == (_COUNT,):
            [row] = result.fetch(None)
            self._rowcount = int(str(row[0]))
        elif result.schema.names:
            self._result = result
            self._rowcount = -1 if result.count is None else result.count

    def fetchone(self) -> Row | None:
        """Return the next row; None after the last one. Raises as `fetchall`."""
        rows = self._fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows, at most `size`, by default `arraysize`. Raises as `fetchall`."""
        return self._fetch(self.arraysize if size is None else size)

    def fetchall(self) -> list[Row]:
        """Return all rows that weren't fetched yet.

        Raises InterfaceError if the cursor or connection is closed, and without a query's rows;
        ProgrammingError if a rollback took the rows away; and as the lake does.
        """
        return self._fetch(None)

    def fetch_arrow_table(self) -> pa.Table:
        """Return all rows that weren't fetched yet as an Arrow table. Raises as `fetchall`."""
        with self._connection._lock, self._connection._reading():
            return self._rows().table()

    def fetch_df(self) -> pd.DataFrame:
        """Return all rows that weren't fetched yet as a pandas DataFrame. Raises as `fetchall`."""
        return self.fetch_arrow_table().to_pandas()

    def _fetch(self, size: int | None) -> list[Row]:
        if size is not None and (type(size) is not int or size < 0):
            raise ProgrammingError(f"expected a number of rows, found {size!r}")
        with self._connection._lock, self._connection._reading():
            return self._rows().fetch(size)

    def _rows(self) -> ResultSet:
        self._require_open()
        if self._result is None:
            raise InterfaceError("there are no rows to fetch: run a query first")
        return self._result

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing: parameters have the types of their values."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: values of any size are fetched whole."""

    def _keep_rows(self, most: int) -> None:
        """Read the rows that weren't read yet, if they are at most `most`."""
        if self._result is not None:
            self._result.keep(most)

    def _lose_rows(self, reason: str) -> None:
        """Give out no more rows that weren't read yet."""
        if self._result is not None:
            self._result.lose(reason)

    def _require_open(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed; open another with con.cursor()")
        self._connection._require_open()

    def close(self) -> None:
        """Release the rows. Every other method raises InterfaceError from now on."""
        self._is_closed, self._result, self._rowcount = True, None, -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(parameters: Arguments | None) -> Arguments | None:
    """Return the parameters. Raises ProgrammingError unless they are a sequence or a mapping."""
    if parameters is None or (isinstance(parameters, Sequence) and not len(parameters)):
        return None
    return _required(parameters)


def _required(parameters: object) -> Arguments:
    if isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        return parameters
    raise ProgrammingError(
        "parameters: expected a sequence for markers ?, or a mapping for markers :name, found a "
        f"{type(parameters).__name__}"
    )
