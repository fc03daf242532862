"""Prepared statements: compiled once by SQLAlchemy, then executed by the driver directly.

What SQLAlchemy does at every execution (cache keys, contexts, result metadata) costs more than a
small statement itself. So the statements on a commit's path are compiled for each kind of database
once. They run in the transaction of the connection given, and raise SQLAlchemy's errors.

Where the database is a server, each wait for an answer is a round trip. So the statement that
begins a transaction is sent with the first one in it, and COMMIT can be sent with the last ones
(`pipelined`): the server carries it out only if it has carried out those before.
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
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import ReturnsRows

_LIST_MAX = 1024
"""The longest list for which a compiled text is cached; lists are padded to powers of two."""

_TO_BEGIN = "txlake_to_begin"
"""In the `info` of a server's connection: the statements that begin its transaction and weren't
sent yet, none once it has begun; None while no transaction is open, and `_ONCE` where the next
statement needs none.
"""
_ONCE = ("",)

Row = Any
"""A named tuple of a row's columns."""

Bound = Sequence[Any] | Mapping[str, Any]


class CommitUnanswered(Exception):
    """COMMIT was sent, and no answer came: the transaction's changes may be there, or may not.
    `error` is SQLAlchemy's.
    """

    def __init__(self, error: SQLAlchemyError) -> None:
        super().__init__(str(error))
        self.error = error


class Prepared:
    """A statement that is executed many times.

    Args:
        statement: the statement; for one with lists of any length, a function that returns it for
            the lists' parameters.
        lists: the names of the lists, in the order of the function's arguments.
        columns: the columns that an INSERT takes from its parameters, besides those in `values`.
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
        """Execute the statement and return its rows."""
        return self.send(connection, **parameters)()

    def send(self, connection: Connection, **parameters: object) -> Callable[[], list[Row]]:
        """Send the statement; return a function that waits for its rows. `parameters` are by name,
        the items of a list as one value.

        Statements that are sent within `pipelined` wait once. Where the driver can't send them
        together the rows are read at once: a statement of SQLite whose rows aren't all read keeps
        its connection in an old state of the file, beyond the transaction's end.
        """
        text, bound = self._bind(connection.dialect, parameters)
        cursor = _cursor(connection)
        base = connection.dialect.loaded_dbapi.Error
        with _executing(connection, text, cursor):
            cursor.execute(text.sql, bound)

        def read_rows() -> list[Row]:
            make_row = text.row
            assert make_row is not None, "the statement returns rows"
            try:
                fetched = cursor.fetchall()
            except base as error:
                raise _sqlalchemy_error(connection, text.sql, error, cursor) from error
            cursor.close()
            return list(map(make_row, map(text.convert, fetched) if text.converters else fetched))

        if _can_pipeline(connection):
            return read_rows
        rows = read_rows()
        return lambda: rows

    def row(self, connection: Connection, **parameters: object) -> Row | None:
        """Execute the statement and return its first row; None if there is none."""
        return next(iter(self.rows(connection, **parameters)), None)

    def number(self, connection: Connection, **parameters: object) -> int:
        """Execute the statement and return the first column of its only row."""
        [row] = self.rows(connection, **parameters)
        return int(row[0])

    def run(self, connection: Connection, **parameters: object) -> None:
        """Execute a statement that returns no rows."""
        text, bound = self._bind(connection.dialect, parameters)
        cursor = _cursor(connection)
        with _executing(connection, text, cursor):
            cursor.execute(text.sql, bound)
        cursor.close()

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement without lists once for each row of parameters."""
        if not rows:
            return
        text = self._text(connection.dialect, ())
        bound: Any = [text.bind(row) for row in rows]
        cursor = _cursor(connection)
        with _executing(connection, text, cursor):
            if len(bound) == 1:
                cursor.execute(text.sql, bound[0])
            else:
                cursor.executemany(text.sql, bound)
        cursor.close()

    def _bind(self, dialect: Dialect, parameters: dict[str, Any]) -> tuple[_Compiled, Bound]:
        """Return the compiled statement for the lists' lengths, and its parameters for the driver.

        Removes the lists from `parameters` and adds their values.
        """
        lengths: tuple[int, ...] = ()
        for name in self._lists:
            values = _padded(parameters.pop(name))
            parameters.update(zip(_parameter_names(name, len(values)), values))
            lengths += (len(values),)
        text = self._text(dialect, lengths)
        return text, text.bind(parameters)

    def _text(self, dialect: Dialect, lengths: tuple[int, ...]) -> _Compiled:
        """Return the statement, compiled for lists of these lengths; cached unless one is long."""
        compiled = self._texts.get((dialect.name, dialect.driver, lengths))
        if compiled is None:
            lists: list[list[sa.BindParameter[Any]]] = [
                [sa.bindparam(place) for place in _parameter_names(name, length)]
                for name, length in zip(self._lists, lengths)
            ]
            statement = self._statement(*lists) if callable(self._statement) else self._statement
            compiled = _compile(statement, dialect, self._columns)
            if max(lengths, default=0) <= _LIST_MAX:
                self._texts[dialect.name, dialect.driver, lengths] = compiled
        return compiled


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement in the driver's form.

    Attributes:
        names: the parameters' names in their order; None if the driver takes them by name.
        constants: the values of parameters that the statement contains.
        row: makes a row of column values; None for a statement that returns no rows.
        converters: functions that convert a column's values, by the column's index.
    """

    sql: str
    names: tuple[str, ...] | None
    constants: Mapping[str, object]
    row: Callable[[Iterable[object]], Row] | None
    converters: tuple[tuple[int, Callable[[Any], Any]], ...]

    def bind(self, parameters: Mapping[str, object]) -> Bound:
        """Return the parameters in the driver's form. Raises KeyError if one is missing."""
        values = {**self.constants, **parameters} if self.constants else parameters
        return values if self.names is None else [values[name] for name in self.names]

    def convert(self, fetched: Sequence[object]) -> Sequence[object]:
        """Return a row's values, converted from the driver's types to the columns'."""
        values = list(fetched)
        for index, convert in self.converters:
            values[index] = convert(values[index])
        return values


def _compile(statement: sa.Executable, dialect: Dialect, column_keys: Sequence[str]) -> _Compiled:
    """Compile a statement; `column_keys`: the columns that an INSERT takes from its parameters."""
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
            (index, convert) for index, convert in enumerate(converters) if convert is not None
        ),
    )


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> Callable[[Iterable[object]], Row]:
    """Return the function that makes a row of values: a named tuple."""
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    make: Callable[[Iterable[object]], Row] = kind._make
    return make


def begin_with(connection: Connection, texts: Sequence[str]) -> None:
    """Let the next statement on a server's connection begin a transaction with these statements.

    Call it when SQLAlchemy begins one; the connection is in autocommit mode.
    """
    connection.info[_TO_BEGIN] = tuple(texts)


def begin_nothing(connection: Connection) -> None:
    """Let one statement be sent on a server's connection, without a transaction around it."""
    connection.info[_TO_BEGIN] = _ONCE


def end_begun(connection: Connection) -> None:
    """Let no statement be sent before `begin_with`: no transaction is open."""
    if not connection.invalidated:  # it was lost, and its record with it
        connection.info[_TO_BEGIN] = None


def send_begin(connection: Connection) -> None:
    """Send the statements that begin the transaction, unless they were sent.

    Raises SQLAlchemy's InvalidRequestError without a transaction: the server would commit each
    statement by itself.
    """
    texts = connection.info.get(_TO_BEGIN, ())
    if texts is None:
        raise InvalidRequestError("a statement before BEGIN or after COMMIT")
    if texts is _ONCE:
        connection.info[_TO_BEGIN] = None
        return
    connection.info[_TO_BEGIN] = ()
    for text in texts:
        _cursor(connection).execute(text)


@contextmanager
def pipelined(connection: Connection, *, commits: bool = False) -> Iterator[None]:
    """Send the block's prepared statements together, if the driver can, and wait once for all.

    The block may not execute SQLAlchemy's own statements. Reading rows in it waits twice.

    `commits`: COMMIT is sent with the statements. Nothing can follow it in the transaction. Where
    the driver can't, the transaction is committed at its end. Raises CommitUnanswered.
    """
    if not _can_pipeline(connection):
        yield
        return
    driver = _driver(connection)
    commit: Any = None
    try:
        with driver.pipeline():
            yield
            if commits:
                send_begin(connection)
                commit = driver.cursor()
                end_begun(connection)
                commit.execute("COMMIT")
    except connection.dialect.loaded_dbapi.Error as error:
        cause = _cause(error)
        translated = _sqlalchemy_error(connection, None, cause, None)
        if commit is not None and not _is_refusal(cause):
            raise CommitUnanswered(translated) from error
        raise translated from error
    if commit is not None and commit.statusmessage != "COMMIT":
        # A statement before was refused, and the caller went on.
        raise InvalidRequestError(f"the answer to COMMIT was {commit.statusmessage}")


@contextmanager
def _executing(connection: Connection, text: _Compiled, cursor: DBAPICursor) -> Iterator[None]:
    """Raise SQLAlchemy's errors for those of the block, which executes one statement.

    If it is the first one of its transaction, what begins that is sent together with it.
    """
    driver = _driver(connection)
    try:
        if connection.info.get(_TO_BEGIN, ()) == ():
            yield
        elif _is_pipelining(driver):
            send_begin(connection)
            yield
        else:
            with driver.pipeline():
                send_begin(connection)
                yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise _sqlalchemy_error(connection, text.sql, _cause(error), cursor) from error


def _can_pipeline(connection: Connection) -> bool:
    """Return whether the driver can send statements together."""
    return hasattr(_driver(connection), "pipeline")


def _is_pipelining(driver: Any) -> bool:  # noqa: ANN401 - a driver's connection
    """Return whether statements on a server's connection are being sent together."""
    return bool(driver.pgconn.pipeline_status)


def _cause(error: Exception) -> Exception:
    """Return the error of the statement because of which those after it weren't carried out; an
    error that has no such cause is returned itself.
    """
    cause: BaseException | None = error
    while cause is not None and type(cause).__name__ == "PipelineAborted":
        cause = cause.__context__
    return cause if isinstance(cause, Exception) else error


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refused a statement, or COMMIT itself, and goes on.

    What it says when it ends the connection (FATAL, PANIC) tells nothing about a COMMIT before.
    """
    severity = getattr(getattr(error, "diag", None), "severity_nonlocalized", None)
    return severity == "ERROR"


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - each driver has its own
    """Return the driver's connection."""
    driver = connection.connection.driver_connection
    assert driver is not None
    return driver


def _cursor(connection: Connection) -> DBAPICursor:
    """Return a new cursor of the driver, in the connection's transaction."""
    cursor: DBAPICursor = _driver(connection).cursor()
    return cursor


def _sqlalchemy_error(
    connection: Connection, sql: str | None, error: Exception, cursor: DBAPICursor | None
) -> SQLAlchemyError:
    """Return SQLAlchemy's error for a driver's error; invalidate the connection if it was lost."""
    dialect = connection.dialect
    base = dialect.loaded_dbapi.Error
    driver = connection.connection.driver_connection
    is_lost = dialect.is_disconnect(cast(Any, error), driver, cursor)
    translated = DBAPIError.instance(
        sql, None, error, base, connection_invalidated=is_lost, dialect=dialect
    )
    if is_lost:
        connection.invalidate(error)
    return translated


@lru_cache(maxsize=256)
def _parameter_names(name: str, length: int) -> tuple[str, ...]:
    """Return the names of a list's parameters."""
    return tuple(f"{name}_{index}" for index in range(length))


def _padded(values: Iterable[object]) -> list[object]:
    """Return the values, the last one repeated up to a power of two, so that few texts serve all
    lengths.

    An empty list becomes one NULL, which equals no value.
    """
    padded = list(values) or [None]
    length = 1 << (len(padded) - 1).bit_length()
    if length <= _LIST_MAX:
        padded += padded[-1:] * (length - len(padded))
    return padded
