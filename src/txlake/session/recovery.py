"""A catalog that was lost is rebuilt from the logs of the tables.

Owns what the logs can tell, and the list of what they can't. The state is the last published one.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.ports import NewTable, Store
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.belongings import catalog_of, transaction_of
from txlake.session.engine import Handle
from txlake.session.opening import lake_at
from txlake.session.session import Session
from txlake.statements import TableName, TablePath, table_of
from txlake.transaction.belonging import Belonging, belonging_of

_STAGED = f"{LOG_FOLDER}/_staged_commits"
_ALWAYS_LOST = (
    "databases' isolation levels, comments and properties: set them again",
    "transactions that were committed, and not published when the catalog was lost",
    "tables outside of the warehouse that weren't named: lake.attach takes them in again",
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a lost catalog.

    Attributes:
        tables: the names of the tables that it has again.
        unknown: what could not be known, a sentence each.
    """

    tables: tuple[str, ...]
    unknown: tuple[str, ...]


def recover(session: Session, locations: tuple[str, ...]) -> Recovered:
    """Fills an empty catalog from the logs of the tables in the warehouse and at other places.

    Raises InvalidRequest when the catalog isn't empty.
    """
    engine = session.engine
    catalog, warehouse = catalog_of(engine), engine.warehouse
    assert warehouse is not None
    if not catalog.is_empty():
        raise InvalidRequest(
            f"catalog {catalog.shown} knows tables already; only an empty one is rebuilt"
        )
    lake = engine.lost or lake_at(warehouse)
    if lake is not None:
        catalog.adopt(lake)
    engine.lost = None
    places = [*_tables_below(warehouse), *locations]
    found: list[str] = []
    notes: list[str] = []
    for place in places:
        handle = engine.at(place, TablePath(place))
        own = _owner(handle, notes)
        if own is None:
            continue
        if own.lake != catalog.lake_id:
            notes.append(f"{handle.store.url} belongs to lake {own.lake}, as {own.name}")
            continue
        name = _register(session, handle, own, notes, managed=place not in locations)
        if name is not None:
            found.append(name)
    return Recovered(tuple(sorted(found)), (*notes, *_ALWAYS_LOST))


def _tables_below(warehouse: Store) -> list[str]:
    """The URLs of the folders below the warehouse that have a log."""
    mark = f"/{LOG_FOLDER}/"
    folders = {
        stored.path.partition(mark)[0] for stored in warehouse.list("") if mark in stored.path
    }
    return [warehouse.at(folder).url for folder in sorted(folders)]


def _owner(handle: Handle, notes: list[str]) -> Belonging | None:
    try:
        latest = handle.log.latest_or_none()
        own = None if latest is None else belonging_of(latest)
    except (CorruptTable, UnsupportedFeature) as error:
        notes.append(f"{handle.store.url} can't be read: {error}")
        return None
    if own is None:
        notes.append(
            f"{handle.store.url} is a table of no lake, or was attached to none: lake.attach takes "
            "it in"
        )
    return own


def _register(
    session: Session, handle: Handle, own: Belonging, notes: list[str], *, managed: bool
) -> str | None:
    """Gives the table its name again; the name, or None where that can't be."""
    engine = session.engine
    try:
        named = table_of(own.name)
    except InvalidRequest:
        named = None
    if not isinstance(named, TableName) or len(named.parts) != 2:
        notes.append(f"{handle.store.url}: its name {own.name!r} is no name of a table")
        return None
    database, name = named.parts
    try:
        catalog_of(engine).create_database(database, if_not_exists=True)
        with transaction_of(engine, session.number) as transaction:
            head = handle.log.latest().version
            entry = NewTable(
                id=own.table,
                database=database,
                name=name,
                location=handle.store.url,
                managed=managed,
                head=head,
            )
            transaction.change_name(entry, {})
    except TxlakeError as error:
        notes.append(f"{handle.store.url} was {own.name}, and isn't any more: {error}")
        return None
    for staged in handle.store.list(_STAGED):
        notes.append(
            f"{own.name}: {staged.path} may hold a commit that was ratified and never published"
        )
    return own.name
