"""Python's database API (PEP 249): a lake in this process, or over `txlake serve`.

`connect` opens a connection. A transaction begins with the first statement, as PEP 249 says, and
ends with `commit` or `rollback`; `autocommit` turns that off. Spark starts when a statement needs
it: the logger `txlake.dbapi` says so at INFO.

| module | owns |
| --- | --- |
| `connection`, `cursor` | the objects of PEP 249 |
| `exceptions` | the tree of errors, and what each error of txlake becomes |
| `type_objects` | the types of columns, and constructors of values |
| `fetching` | a statement's rows as Python's values and as Arrow |
| `transactions` | which statements begin a transaction, and which can't be part of one |
| `ports` | what a connection needs of a lake |
| `in_process`, `over_http` | a lake in this process, and one that a server opens |
"""

from __future__ import annotations

from txlake.dbapi.connection import Connection, connect
from txlake.dbapi.cursor import Cursor
from txlake.dbapi.exceptions import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from txlake.dbapi.type_objects import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 2
"""Threads may share the module and connections, whose statements run one after the other."""
paramstyle = "qmark"
"""`?`; markers `:name` work too, with a mapping."""

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
