"""SET TRANSACTION ISOLATION LEVEL: its effect on a session's level, and its result row.

A database can have it ignored, as Fabric ignores it, by a property of its own (DBPROPERTIES).
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.catalog import DatabaseEntry
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.views.describe import Rows
from txlake.sql.statements import SetIsolation

IGNORED = "txlake.ignoreSetTransactionIsolation"
_COLUMNS = Struct(
    tuple(Field(name, Primitive("string"), False) for name in ("statement", "isolation", "message"))
)
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class IsolationSet:
    """The statement's effect on levels, and its result row.

    Attributes:
        level: the session's level from here on; None if it requests none.
        of_open: the level that the open transaction requests, as `level`; None without one.
    """

    level: Level | None
    of_open: Level | None
    rows: Rows


def parse_ignored(text: str) -> bool:
    """Parse the value of the property IGNORED. Raises InvalidRequest unless it is true or false."""
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise InvalidRequest(f"{IGNORED} = {text!r}: expected true or false")
    return value


def raised(level: Level | None, asked: Level) -> Level | None:
    """Return the level that an open transaction requests after SET asked for another: never looser.

    What the transaction has read so far was read at its level. None stands for a transaction that
    requests no level and has the default or its databases'; SNAPSHOT leaves it so.
    """
    if level is None:
        return None if asked is Level.SNAPSHOT else asked
    return strictest(level, asked)


def shown_isolation(level: Level | None, database: DatabaseEntry | None) -> Rows:
    """Return the row of SHOW transaction_isolation: the stricter of the level and the database's.

    The default level if neither is set.
    """
    asked = None if database is None else database.isolation
    found = strictest(None if asked is None else parse_level(asked), level)
    columns = Struct((Field("transaction_isolation", Primitive("string"), False),))
    return Rows(schema=columns, rows=[(found.value,)])


def set_isolation(
    statement: SetIsolation,
    level: Level | None,
    database: DatabaseEntry | None,
    *,
    of_open: Level | None = None,
    is_open: bool = False,
) -> IsolationSet:
    """Return the effect of SET TRANSACTION ISOLATION LEVEL; nothing is changed here.

    Args:
        level: the session's level.
        database: the session's database, which may have the statement ignored.
        of_open: the level that the open transaction requests.
        is_open: whether a transaction is open.

    The row's `isolation` is the level in force, of the open transaction or else of the session: the
    stricter of it and the database's, in txlake's spelling (`write_serializable`).

    Raises InvalidRequest for an invalid value of the database's property IGNORED.
    """
    of_database = None
    ignored = False
    if database is not None:
        of_database = None if database.isolation is None else parse_level(database.isolation)
        ignored = parse_ignored(database.properties.get(IGNORED, "false"))
    asked = None if statement.level is None else parse_level(statement.level)
    if not ignored and asked is not None:
        level, of_open = asked, raised(of_open, asked)
    in_force = strictest(of_database, level)
    if ignored and database is not None:
        message = f"ignored: database {database.name} has {IGNORED} = true"
    elif asked is None:
        message = (
            f"{statement.spelling} changes nothing: a transaction reads one snapshot, which gives "
            "at least that"
        )
    elif asked is in_force:
        message = "the session's transactions from the next on run at this level"
    else:
        assert database is not None
        message = (
            f"the session's level is {asked.value} now; its database {database.name} asks for "
            f"{in_force.value}, and the stricter one counts"
        )
    if is_open:
        in_force = strictest(of_database, of_open)
        message += f"; the open transaction, whose level is never lowered, runs at {in_force.value}"
    said = f"SET TRANSACTION ISOLATION LEVEL {statement.spelling}"
    rows = Rows(schema=_COLUMNS, rows=[(said, in_force.value, message)])
    return IsolationSet(level, of_open, rows)
