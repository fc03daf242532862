"""Session functions, replaced by their values: `@@TRANCOUNT`, `DB_NAME()`, `OBJECT_ID('t')`.

Owns what each answer is in Spark's SQL. The texts that handlers, locks and conflict checks get have
no question left in them: what a condition meant when it ran is what is checked later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

from txlake.session.engine import Engine
from txlake.session.transaction import State, Transaction
from txlake.sql import sql_literal
from txlake.sql.brackets import backquote_brackets
from txlake.sql.statements import (
    Atomic,
    Select,
    SessionFunction,
    SqlText,
    Statement,
    TableName,
    table_of,
)

_Part = TypeVar("_Part")
_TABLE_TYPES = frozenset({"U"})


@dataclass(frozen=True, slots=True)
class SessionFunctionValues:
    """The values of the session functions for one session and its lake.

    Attributes:
        transaction: the open one, which may have failed; None without one.
        database: what unqualified names belong to.
        number: gives the session's number, made on first use.
    """

    engine: Engine
    transaction: Transaction | None
    database: str
    number: Callable[[], int]

    @property
    def state(self) -> int:
        """T-SQL's XACT_STATE: 1 in an open transaction, -1 in one that has failed, else 0."""
        if self.transaction is None:
            return 0
        return 1 if self.transaction.state is State.ACTIVE else -1

    def of(self, question: SessionFunction) -> list[str]:
        """Return the SQL texts before, between and after the function's operands.

        Joined with the operands' texts they give its value; without operands it is a single text.
        """
        match question.name:
            case "@@SPID":
                return [str(self.number())]
            case "@@TRANCOUNT":
                return [str(abs(self.state))]
            case "XACT_STATE":
                return [f"({self.state})"]
            case "CURRENT_DATABASE" | "CURRENT_SCHEMA":
                return [sql_literal(self._database_name())]
            case "DB_NAME" if not question.operands:
                return [sql_literal(self._database_name())]
            case "DB_NAME":
                names = {str(number): name for name, number in self._databases().items()}
                return [f"{_lookup(names)}CAST((", ") AS STRING))"]
            case "DB_ID" if not question.operands:
                return [_integer(self._databases().get(self._database_name()))]
            case "DB_ID":
                numbers = {name.lower(): str(one) for name, one in self._databases().items()}
                return [f"CAST({_lookup(numbers)}lower((", "))) AS INT)"]
            case "OBJECT_ID":
                return [_integer(self._object_number(*question.literals))]
            case "OBJECT_NAME":
                return self._object_name(len(question.operands))
            case _:
                raise AssertionError(question)

    def _database_name(self) -> str:
        entry = self.engine.catalog.database(self.database)
        return self.database if entry is None else entry.name

    def _databases(self) -> dict[str, int]:
        return {one.name: one.number for one in self.engine.catalog.databases()}

    def _object_number(self, name: str, kind: str = "U") -> int | None:
        """Return the number of a table as the transaction sees it; None if there is none.

        None also for a kind other than `U` (a user table), for views, paths and path tables.
        """
        table = table_of(backquote_brackets(name))
        if kind.strip().upper() not in _TABLE_TYPES or not isinstance(table, TableName):
            return None
        engine, transaction = self.engine, self.transaction
        full = engine.qualified(table, self.database)
        if transaction is not None and transaction.names.has(full):
            handle = transaction.names.meaning_of(full)
        else:
            handle = engine.find(table, self.database)
        return None if handle is None or handle.entry is None else handle.entry.number

    def _object_name(self, operands: int) -> list[str]:
        """Return the texts around the operands of OBJECT_NAME: a number, or a number and a
        database's.
        """
        names: dict[str, str] = {}
        catalog = self.engine.catalog
        for database in catalog.databases():
            for one in catalog.tables(database.name):
                key = f"{one.number}" if operands == 1 else f"{one.number}/{database.number}"
                names[key] = one.name
        if operands == 1:
            return [f"{_lookup(names)}CAST((", ") AS STRING))"]
        return [f"{_lookup(names)}concat(CAST((", ") AS STRING), '/', CAST((", ") AS STRING)))"]


def with_values(statement: Statement, values_of: Callable[[], SessionFunctionValues]) -> Statement:
    """Return the statement with its session functions replaced by values; itself if it has none.

    `values_of` is called only for a statement with session functions. The functions in a BEGIN
    ATOMIC are replaced when its statements run.
    """
    return statement if isinstance(statement, Atomic) else _with_values_in(statement, values_of)


def is_only_session_functions(statement: Statement) -> bool:
    """Return whether the statement is a query of session functions that reads no table."""
    if not isinstance(statement, Select):
        return False
    return bool(statement.query.session_functions) and not statement.query.references


def _with_values_in(part: _Part, values_of: Callable[[], SessionFunctionValues]) -> _Part:
    """Return a part of a statement with the session functions in its texts replaced.

    A part without any, and anything but a dataclass, is returned as it is.
    """
    if not is_dataclass(part) or isinstance(part, type):
        return part
    changed: dict[str, object] = {}
    for item in fields(part):
        before = getattr(part, item.name)
        after = _with_values_in_item(before, values_of)
        if after is not before:
            changed[item.name] = after
    return replace(part, **changed) if changed else part


def _with_values_in_item(value: object, values_of: Callable[[], SessionFunctionValues]) -> object:
    """Return the value of a field with the session functions in its texts replaced."""
    if isinstance(value, SqlText):
        return value.with_session_values(values_of().of) if value.session_functions else value
    if isinstance(value, tuple):
        made = tuple(_with_values_in_item(one, values_of) for one in value)
        return value if all(one is other for one, other in zip(made, value)) else made
    return _with_values_in(value, values_of)


def _integer(number: int | None) -> str:
    return "CAST(NULL AS INT)" if number is None else str(number)


def _lookup(values: Mapping[str, str]) -> str:
    """Return the SQL of a look-up up to its key, after which the key and `)` have to follow.

    The key is a text; the look-up gives NULL for one that `values` lacks.
    """
    text = json.dumps(values, ensure_ascii=False)  # no backslash, which settings may change
    return f"try_element_at(from_json({sql_literal(text)}, 'map<string,string>'), "
