"""The error for a table's name that the lake doesn't have, with similar names."""

from __future__ import annotations

from txlake.catalog import TableEntry
from txlake.errors import InvalidRequest, TxlakeError
from txlake.nearest import did_you_mean, nearest
from txlake.session.engine import Engine
from txlake.session.transaction import Transaction
from txlake.session.views import VIEWS
from txlake.sql.statements import TableName

_ADVICE = "SHOW TABLES lists them, and a table outside the lake is named delta.`/path`"


def unknown_table(
    engine: Engine, transaction: Transaction | None, database: str, table: TableName
) -> InvalidRequest:
    """Return the error for a name that means no table, with the most similar names.

    An error of the catalog on the way is ignored, and no similar names are given. Raises
    InvalidRequest for a name of another catalog.
    """
    if not engine.catalog.has_names:
        return InvalidRequest(
            f"there is no table {str(table)!r} in database {database!r}; {_ADVICE}"
        )
    owner, name = engine.qualified(table, database)
    near = _near(engine, transaction, table, owner, name)
    asked = f"{did_you_mean(near)} {_ADVICE}".lstrip()
    where = "" if _has_database(engine, owner) else " (there is no such database)"
    return InvalidRequest(f"there is no table {name!r} in database {owner!r}{where}; {asked}")


def tables_in(engine: Engine, transaction: Transaction | None, database: str) -> list[TableEntry]:
    """Return a database's tables sorted by name, as the transaction sees them with its own changes.

    Raises InvalidRequest if there is no such database.
    """
    found = engine.catalog.tables(database)
    own = {} if transaction is None else transaction.names.in_database(database)
    kept = [entry for entry in found if entry.name.lower() not in own]
    made = [handle.entry for handle in own.values() if handle is not None and handle.entry]
    return sorted((*kept, *made), key=lambda entry: entry.name.lower())


def _near(
    engine: Engine, transaction: Transaction | None, table: TableName, owner: str, name: str
) -> list[str]:
    """Return the names of the most similar tables, and for a qualified name also of system views.

    A table of another database than the name's is given with its database. Empty if the catalog
    fails.
    """
    try:
        entries = [
            entry
            for database in engine.catalog.databases()
            for entry in tables_in(engine, transaction, database.name)
        ]
    except TxlakeError:  # the name is wrong, whatever ails the catalog
        return []
    if len(table.parts) > 1:
        full = [f"{entry.database}.{entry.name}" for entry in entries]
        found = nearest(f"{owner}.{name}", [*full, *VIEWS])
        # One database's name in both makes any two of its tables' names alike.
        return [one for one in found if nearest(name, [one.rpartition(".")[2]])]
    homes: dict[str, list[str]] = {}
    for entry in entries:
        is_here = entry.database.lower() == owner.lower()
        shown = entry.name if is_here else f"{entry.database}.{entry.name}"
        homes.setdefault(entry.name.casefold(), []).append(shown)
    return [shown for one in nearest(name, homes) for shown in sorted(homes[one], key=len)]


def _has_database(engine: Engine, name: str) -> bool:
    """Return whether the database exists; True if the catalog fails."""
    try:
        return engine.catalog.database(name) is not None
    except TxlakeError:
        return True
