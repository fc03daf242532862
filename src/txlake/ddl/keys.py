"""Informational keys: PRIMARY KEY and FOREIGN KEY, kept as table properties, never enforced.

Owns the property's text and its checks: a key's columns exist, there is at most one primary key,
and its columns are NOT NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.protocol.properties import CONSTRAINT_PREFIX, KEY_PREFIX, column_list
from txlake.protocol.types import Struct
from txlake.sql.statements import KeyConstraint, Table, TableName, quoted

_CLAUSE = re.compile(r"(PRIMARY|FOREIGN) KEY \(((?:`(?:[^`]|``)*`|[^`)])*)\)(?:$| )")


@dataclass(frozen=True, slots=True)
class Key:
    """A table's key; `text` is its SQL clause, and a key that isn't primary is a foreign one."""

    name: str
    columns: tuple[str, ...]
    is_primary: bool
    text: str


def keys_of(configuration: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys among a table's properties, sorted by name.

    Raises InvalidRequest for an invalid one.
    """
    return tuple(
        _key(name[len(KEY_PREFIX) :], text)
        for name, text in sorted(configuration.items())
        if name.startswith(KEY_PREFIX)
    )


def _key(name: str, text: str) -> Key:
    """Return the key of a property's text. Raises InvalidRequest unless `with_keys` may have
    written it.
    """
    match = _CLAUSE.match(text)
    if match is None:
        raise InvalidRequest(
            f"table property {KEY_PREFIX + name!r} is {text!r}: expected PRIMARY KEY (...) or "
            "FOREIGN KEY (...) REFERENCES ..., as ALTER TABLE ... ADD CONSTRAINT writes it"
        )
    columns = tuple(path[0] for path in column_list(match[2]))
    return Key(name, columns, match[1] == "PRIMARY", text)


def with_keys(
    configuration: Mapping[str, str], table: Table, keys: Iterable[KeyConstraint]
) -> dict[str, str]:
    """Return a table's properties with keys added; names become lower case.

    A key without a name gets one by its table and columns. Raises InvalidRequest for a name that a
    key or CHECK constraint has. Whether the columns exist is left to `check_keys`.
    """
    result = dict(configuration)
    for key in keys:
        name = (key.name or _default_name(table, key)).lower()
        if any(f"{prefix}{name}" in result for prefix in (KEY_PREFIX, CONSTRAINT_PREFIX)):
            hint = "drop it first" if key.name else "give the key a name: CONSTRAINT name ..."
            raise InvalidRequest(f"constraint {name} is there already; {hint}")
        result[f"{KEY_PREFIX}{name}"] = _clause(key)
    return result


def _default_name(table: Table, key: KeyConstraint) -> str:
    base = table.name if isinstance(table, TableName) else "table"
    return f"{base}_pk" if key.parent is None else "_".join((base, *key.columns, "fk"))


def _clause(key: KeyConstraint) -> str:
    """Return the key as an SQL clause: PRIMARY KEY (...), or FOREIGN KEY (...) REFERENCES ..."""
    columns = ", ".join(map(quoted, key.columns))
    rely = " RELY" if key.rely else ""
    if key.parent is None:
        return f"PRIMARY KEY ({columns}){rely}"
    parents = f" ({', '.join(map(quoted, key.parent_columns))})" if key.parent_columns else ""
    return f"FOREIGN KEY ({columns}) REFERENCES {key.parent}{parents}{rely}"


def check_keys(configuration: Mapping[str, str], schema: Struct) -> None:
    """Raise InvalidRequest unless the keys among the properties fit the schema.

    At most one is primary, its columns are NOT NULL, and all columns exist; parent tables aren't
    checked.
    """
    keys = keys_of(configuration)
    primary = [key for key in keys if key.is_primary]
    if len(primary) > 1:
        raise InvalidRequest(
            f"a table has one primary key, found {primary[0].name} and {primary[1].name}; drop one "
            "by ALTER TABLE ... DROP CONSTRAINT"
        )
    for key in keys:
        for column in key.columns:
            item = schema.find(column)
            if item is None:
                raise InvalidRequest(
                    f"constraint {key.name} ({key.text}) names the column {column!r}, and the "
                    f"table has {', '.join(schema.names)}; name another, or drop the constraint "
                    "first by ALTER TABLE ... DROP CONSTRAINT"
                )
            if key.is_primary and item.nullable:
                raise InvalidRequest(
                    f"constraint {key.name} ({key.text}): column {column!r} of a primary key is "
                    "NOT NULL; ALTER TABLE ... ALTER COLUMN ... SET NOT NULL makes it so, and "
                    "without the constraint it may be null"
                )


def primary_columns(keys: Iterable[KeyConstraint]) -> frozenset[str]:
    """Return the columns of the primary key, in lower case."""
    return frozenset(column.lower() for key in keys if key.parent is None for column in key.columns)
