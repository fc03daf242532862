"""Statements that are compiled once and go straight to the driver.

SQLAlchemy writes a statement for each kind of database; what it does at every execution besides
(cache keys, contexts, result metadata) costs more than a small statement itself. The statements of
a commit's path are therefore kept as text with the places of their parameters. They run in the
transaction of the connection they are given, and raise the errors that SQLAlchemy raises.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import ReturnsRows

_LIST_MAX = 1024
"""Of a list's values with which a compiled text is kept; lists are filled up to powers of two."""

Row = Any
"""A named tuple of a row's columns."""

Bound = Sequence[Any] | Mapping[str, Any]


class Prepared:
    """A statement of the catalog that is executed again and again.

    A statement that compares with lists of any length is a function: for each of `lists` it gets as
    many parameters as there are values. `columns` are the columns that an INSERT takes from its
    parameters, besides those in its `values`.
    """

    def __init__(
        self,
        statement: sa.Executable | Callable[..., sa.Executable],
        *lists: str,
        columns: Iterable[str] = (),
    ) -> None:
        self._statement = statement
        self._lists = lists
        self._columns = tuple(columns)
        self._texts: dict[tuple[str, str, tuple[int, ...]], _Compiled] = {}

    def rows(self, connection: Connection, **parameters: object) -> list[Row]:
        """The rows that it gives."""
        return self.send(connection, **parameters)()

    def send(self, connection: Connection, **parameters: object) -> Callable[[], list[Row]]:
        """Send the statement; return a function that waits for its rows.

        Statements that are sent within `pipelined` wait once.
        """
        text, bound = self._bind(connection.dialect, parameters)
        cursor = _cursor(connection)
        base = connection.dialect.loaded_dbapi.Error
        try:
            cursor.execute(text.sql, bound)
        except base as error:
            raise _sqlalchemy_error(connection, text.sql, error, cursor) from error

        def answered() -> list[Row]:
            make = text.row
            assert make is not None, "the statement gives rows"
            try:
                found = cursor.fetchall()
            except base as error:
                raise _sqlalchemy_error(connection, text.sql, error, cursor) from error
            cursor.close()
            return list(map(make, map(text.converted, found) if text.converters else found))

        return answered

    def row(self, connection: Connection, **parameters: object) -> Row | None:
        """The first of its rows."""
        return next(iter(self.rows(connection, **parameters)), None)

    def number(self, connection: Connection, **parameters: object) -> int:
        """The first column of its only row."""
        [row] = self.rows(connection, **parameters)
        return int(row[0])

    def run(self, connection: Connection, **parameters: object) -> None:
        """Executes what gives no rows."""
        text, bound = self._bind(connection.dialect, parameters)
        cursor = _cursor(connection)
        try:
            cursor.execute(text.sql, bound)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _sqlalchemy_error(connection, text.sql, error, cursor) from error
        cursor.close()

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
        """Executes it once for each of the rows of parameters; it has no lists."""
        if not rows:
            return
        text = self._text(connection.dialect, ())
        bound: Any = [text.bind(row) for row in rows]
        cursor = _cursor(connection)
        try:
            if len(bound) == 1:
                cursor.execute(text.sql, bound[0])
            else:
                cursor.executemany(text.sql, bound)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _sqlalchemy_error(connection, text.sql, error, cursor) from error
        cursor.close()

    def _bind(self, dialect: Dialect, parameters: dict[str, Any]) -> tuple[_Compiled, Bound]:
        lengths: tuple[int, ...] = ()
        for name in self._lists:
            values = _padded(parameters.pop(name))
            parameters.update(zip(_parameter_names(name, len(values)), values))
            lengths += (len(values),)
        text = self._text(dialect, lengths)
        return text, text.bind(parameters)

    def _text(self, dialect: Dialect, lengths: tuple[int, ...]) -> _Compiled:
        found = self._texts.get((dialect.name, dialect.driver, lengths))
        if found is None:
            lists: list[list[sa.BindParameter[Any]]] = [
                [sa.bindparam(place) for place in _parameter_names(name, length)]
                for name, length in zip(self._lists, lengths)
            ]
            statement = self._statement(*lists) if callable(self._statement) else self._statement
            found = _compile(statement, dialect, self._columns)
            if max(lengths, default=0) <= _LIST_MAX:
                self._texts[dialect.name, dialect.driver, lengths] = found
        return found


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement as the driver takes it.

    Attributes:
        names: of the parameters in their order; None where the driver takes them by name.
        constants: the parameters that the statement brings along.
        row: makes a row of its columns; None for a statement that gives none.
        converters: what some columns need, before they are made a row.
    """

    sql: str
    names: tuple[str, ...] | None
    constants: Mapping[str, object]
    row: Callable[[Iterable[object]], Row] | None
    converters: tuple[tuple[int, Callable[[Any], Any]], ...]

    def bind(self, parameters: Mapping[str, object]) -> Bound:
        """The parameters as the driver takes them. Raises KeyError for one that is missing."""
        values = {**self.constants, **parameters} if self.constants else parameters
        return values if self.names is None else [values[name] for name in self.names]

    def converted(self, found: Sequence[object]) -> Sequence[object]:
        """A row's values as they were before they were written."""
        values = list(found)
        for place, convert in self.converters:
            values[place] = convert(values[place])
        return values


def _compile(statement: sa.Executable, dialect: Dialect, column_keys: Sequence[str]) -> _Compiled:
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=dialect, column_keys=list(column_keys) or None)
    assert isinstance(compiled, SQLCompiler)
    columns: tuple[sa.ColumnElement[Any], ...] = ()
    if isinstance(statement, ReturnsRows):
        columns = tuple(cast(Any, statement).exported_columns)
    converters = [column.type.result_processor(dialect, None) for column in columns]
    parameters = compiled.params
    return _Compiled(
        sql=str(compiled),
        names=tuple(compiled.positiontup or ()) if compiled.positional else None,
        constants={
            name: parameters[name]
            for parameter, name in compiled.bind_names.items()
            if not parameter.required
        },
        row=_row_type(tuple(column.key or column.name for column in columns)) if columns else None,
        converters=tuple(
            (place, convert) for place, convert in enumerate(converters) if convert is not None
        ),
    )


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> Callable[[Iterable[object]], Row]:
    """Makes rows of values. Those of a caller that unpacks them are tuples too."""
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    make: Callable[[Iterable[object]], Row] = kind._make
    return make


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Prepared statements that are sent in one go where the driver can: one wait for all.

    Within it SQLAlchemy executes nothing.
    """
    driver: Any = connection.connection.driver_connection
    pipeline = getattr(driver, "pipeline", None)
    if pipeline is None:
        yield
        return
    try:
        with pipeline():
            yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise _sqlalchemy_error(connection, None, error, None) from error


def _cursor(connection: Connection) -> DBAPICursor:
    driver = connection.connection.driver_connection
    assert driver is not None
    cursor: DBAPICursor = driver.cursor()
    return cursor


def _sqlalchemy_error(
    connection: Connection, sql: str | None, error: Exception, cursor: DBAPICursor | None
) -> Exception:
    """SQLAlchemy's error for one of the driver's. A connection that was lost is used no more."""
    dialect = connection.dialect
    base = dialect.loaded_dbapi.Error
    driver = connection.connection.driver_connection
    is_lost = dialect.is_disconnect(cast(Any, error), driver, cursor)
    made = DBAPIError.instance(
        sql, None, error, base, connection_invalidated=is_lost, dialect=dialect
    )
    if is_lost:
        connection.invalidate(error)
    return made


@lru_cache(maxsize=256)
def _parameter_names(name: str, length: int) -> tuple[str, ...]:
    """The names of a list's parameters."""
    return tuple(f"{name}_{place}" for place in range(length))


def _padded(values: Iterable[object]) -> list[object]:
    """The values, the last one repeated up to a power of two: few texts serve all lengths.

    No values are one NULL, which nothing equals.
    """
    padded = list(values) or [None]
    length = 1 << (len(padded) - 1).bit_length()
    if length <= _LIST_MAX:
        padded += padded[-1:] * (length - len(padded))
    return padded
