"""SET TRANSACTION ISOLATION LEVEL: what it makes of a session's level, and the row that says so.

A database can have it ignored, as Fabric ignores it, by a property of its own (DBPROPERTIES).
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.catalog import DatabaseEntry
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.describe import Rows
from txlake.statements import SetIsolation

IGNORED = "txlake.ignoreSetTransactionIsolation"
_COLUMNS = Struct(
    tuple(Field(name, Primitive("string"), False) for name in ("statement", "isolation", "message"))
)
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class IsolationSet:
    """The session's level from here on (None: none was asked for), and the answer's one row."""

    level: Level | None
    rows: Rows


def parse_ignored(text: str) -> bool:
    """The value of the property IGNORED. Raises InvalidRequest unless it is true or false."""
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise InvalidRequest(f"{IGNORED} = {text!r}: expected true or false")
    return value


def set_isolation(
    statement: SetIsolation, level: Level | None, database: DatabaseEntry | None
) -> IsolationSet:
    """What the statement makes of a session at `level` that uses `database`.

    The row's `isolation` is the level in force: the stricter of the session's and the database's,
    as Python writes it.
    """
    of_database = None
    ignored = False
    if database is not None:
        of_database = None if database.isolation is None else parse_level(database.isolation)
        ignored = parse_ignored(database.properties.get(IGNORED, "false"))
    asked = None if statement.level is None else parse_level(statement.level)
    if not ignored and asked is not None:
        level = asked
    in_force = strictest(of_database, level)
    if ignored and database is not None:
        message = f"ignored: database {database.name} has {IGNORED} = true"
    elif asked is None:
        message = (
            f"{statement.said} changes nothing: a transaction reads one snapshot, which gives at "
            "least that"
        )
    elif asked is in_force:
        message = "the session's transactions from the next on run at this level"
    else:
        assert database is not None
        message = (
            f"the session's level is {asked.value} now; its database {database.name} asks for "
            f"{in_force.value}, and the stricter one counts"
        )
    said = f"SET TRANSACTION ISOLATION LEVEL {statement.said}"
    return IsolationSet(level, Rows(schema=_COLUMNS, rows=[(said, in_force.value, message)]))
