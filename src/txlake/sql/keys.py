"""The grammar of PRIMARY KEY and FOREIGN KEY, as table and column constraints."""

from __future__ import annotations

from txlake.sql.cursor import Cursor
from txlake.sql.statements import KeyConstraint

_NOT_ENFORCED = (
    "a key is told to readers and never enforced: leave ENFORCED out, or check rows by CONSTRAINT "
    "name CHECK (condition)"
)
# Options of the SQL standard that have no meaning for keys that aren't enforced.
_IGNORED = (
    ("NOT", "ENFORCED"),
    ("NOT", "DEFERRABLE"),
    ("DEFERRABLE",),
    ("INITIALLY", "DEFERRED"),
    ("INITIALLY", "IMMEDIATE"),
    ("MATCH", "FULL"),
    ("ON", "UPDATE", "NO", "ACTION"),
    ("ON", "DELETE", "NO", "ACTION"),
)


def at_key(cursor: Cursor) -> bool:
    """Return whether a key as a table constraint is next, without CONSTRAINT name."""
    return cursor.at("PRIMARY", "KEY") or cursor.at("FOREIGN", "KEY")


def at_column_key(cursor: Cursor) -> bool:
    """Return whether a key as a column constraint is next, without CONSTRAINT name."""
    return at_key(cursor) or cursor.at("REFERENCES")


def key_constraint(cursor: Cursor, name: str | None) -> KeyConstraint:
    """Parse { PRIMARY KEY (columns) | FOREIGN KEY (columns) REFERENCES parent [(columns)] }
    [options].

    Follows [CONSTRAINT name].
    """
    if cursor.accept("PRIMARY", "KEY"):
        key = KeyConstraint(name=name, columns=_columns(cursor))
    else:
        cursor.expect("FOREIGN", "KEY")
        key = _foreign(cursor, name, _columns(cursor))
    return _with_options(cursor, key)


def column_key(cursor: Cursor, name: str | None, column: str) -> KeyConstraint:
    """Parse { PRIMARY KEY | [FOREIGN KEY] REFERENCES parent [(column)] } [options], after a
    column.
    """
    if cursor.accept("PRIMARY", "KEY"):
        key = KeyConstraint(name=name, columns=(column,))
    else:
        cursor.accept("FOREIGN", "KEY")
        key = _foreign(cursor, name, (column,))
    return _with_options(cursor, key)


def _foreign(cursor: Cursor, name: str | None, columns: tuple[str, ...]) -> KeyConstraint:
    """Parse REFERENCES parent [(columns)], after [FOREIGN KEY [(columns)]].

    Raises InvalidRequest for another number of parent columns than of `columns`.
    """
    cursor.expect("REFERENCES")
    parent = cursor.table()
    start = cursor.token
    parents = _columns(cursor) if cursor.at("(") else ()
    if parents and len(parents) != len(columns):
        cursor.refuse(f"{len(columns)} columns refer to {len(parents)}", start)
    return KeyConstraint(name=name, columns=columns, parent=parent, parent_columns=parents)


def _with_options(cursor: Cursor, key: KeyConstraint) -> KeyConstraint:
    """Parse [RELY | NORELY] and options without a meaning here, and return the key with them.

    Raises InvalidRequest for ENFORCED.
    """
    rely = key.rely
    while True:
        if cursor.at("ENFORCED"):
            cursor.refuse(_NOT_ENFORCED)
        elif cursor.accept("RELY"):
            rely = True
        elif cursor.accept("NORELY"):
            rely = False
        elif not any(cursor.accept(*option) for option in _IGNORED):
            return KeyConstraint(
                name=key.name,
                columns=key.columns,
                parent=key.parent,
                parent_columns=key.parent_columns,
                rely=rely,
            )


def _columns(cursor: Cursor) -> tuple[str, ...]:
    """Parse (column, ...), each once."""
    start = cursor.token

    def column() -> str:
        """Parse the name of a whole column."""
        name = cursor.name("a column")
        if cursor.at("."):
            cursor.refuse("a key has whole columns of the table, no fields of structs")
        if cursor.at("TIMESERIES"):
            cursor.refuse("TIMESERIES is not known: leave it out")
        return name

    columns = cursor.parenthesized(column)
    if len({name.lower() for name in columns}) < len(columns):
        cursor.refuse("a column is named twice", start)
    return columns
