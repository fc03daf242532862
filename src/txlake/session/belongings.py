"""What belongs to a lake: tables attached and detached, and what a dropped one leaves behind.

Owns the order of the two steps that attaching takes, in the table's log and in the catalog, and
what heals one that was cut short.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from txlake.catalog import Catalog, TableEntry
from txlake.errors import InvalidRequest, TxlakeError
from txlake.ports import DroppedTable, NewTable
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.statements import TableName
from txlake.transaction.belonging import (
    ATTACH,
    DETACH,
    Belonging,
    attaching,
    belonging_of,
    detaching,
)
from txlake.transaction.change import Change
from txlake.transaction.table_transaction import TableTransaction

_logger = logging.getLogger(__name__)


def catalog_of(engine: Engine) -> Catalog:
    """The lake's catalog. Raises InvalidRequest where there is none."""
    if engine.catalog is None:
        raise InvalidRequest("there is no lake here; open one with txlake.connect")
    return engine.catalog


def refuse_lost(engine: Engine) -> None:
    """Raises InvalidRequest for a lake whose catalog is lost and not rebuilt yet."""
    if engine.lost is not None:
        place = "" if engine.warehouse is None else engine.warehouse.url
        raise InvalidRequest(
            f"catalog {catalog_of(engine).shown} is new, and {place} is the warehouse of lake "
            f"{engine.lost}, whose catalog knows its tables: give that catalog, or, when it is "
            "lost, rebuild it from the tables' logs with lake.recover()"
        )


def new_entry(
    engine: Engine, database: str, name: str, location: str, *, managed: bool
) -> TableEntry:
    """The entry of a table that the catalog doesn't have yet."""
    return TableEntry(
        id=engine.system.new_id(),
        database=database,
        name=name,
        location=location,
        managed=managed,
    )


def attach(
    engine: Engine,
    session_number: Callable[[], int],
    handle: Handle,
    database: str,
    name: str,
    *,
    managed: bool,
) -> TableEntry:
    """Makes a path table one of the lake, with nothing rewritten.

    First the table's log says whose it is: from then on no other engine writes it. Then the
    catalog takes it in. What was cut short between the two is finished by attaching again.

    Raises InvalidRequest when it belongs to another lake, or the name is taken, Conflict when
    another writer changed the table's settings meanwhile.
    """
    catalog = catalog_of(engine)
    if catalog.find(database, name) is not None:
        raise InvalidRequest(f"table {database}.{name} exists already; choose another name")
    latest = handle.log.latest()
    own = belonging_of(latest)
    if own is not None and own.lake != catalog.lake_id:
        raise InvalidRequest(
            f"{handle.store.url} belongs to another lake ({own.lake}), as {own.name}; detach it "
            "there first"
        )
    entry = new_entry(engine, database, name, handle.store.url, managed=managed)
    stamp = Belonging(
        lake=catalog.lake_id, table=entry.id, name=str(TableName((database, name)))
    )
    if own is None:
        head = _stamped(handle, stamp)
    else:  # an attachment that was cut short, or a table that the catalog lost
        entry, head = replace(entry, id=own.table), latest.version
    with transaction_of(engine, session_number) as transaction:
        named = NewTable(
            id=entry.id,
            database=database,
            name=name,
            location=entry.location,
            managed=managed,
            head=head,
        )
        transaction.change_name(named, {})
    found = catalog.find(database, name)
    assert found is not None
    if own is not None and own.name != stamp.name:
        with transaction_of(engine, session_number) as transaction:
            mark(transaction, engine.at_entry(found), "RENAME TABLE")
    return found


def _stamped(handle: Handle, stamp: Belonging) -> int:
    """Writes into the table's own log whose it is; the version that says so."""
    own = TableTransaction(handle.log, handle.log.latest())
    own.stage(attaching(stamp, own.view), operation=ATTACH, parameters={"name": stamp.name})
    return own.commit().version


def mark(transaction: Transaction, handle: Handle, operation: str) -> None:
    """Says in the log of a table of the lake which lake it is, and by what name."""
    entry = handle_entry(handle)
    stamp = Belonging(
        lake=catalog_of(transaction.engine).lake_id,
        table=entry.id,
        name=str(TableName((entry.database, entry.name))),
    )
    actions = attaching(stamp, transaction.open(handle).view)
    transaction.stage(handle, Change(operation=operation, actions=actions))


def drop(transaction: Transaction, handle: Handle) -> None:
    """Takes a table out of the lake; its folder goes with it when it is the lake's own."""
    take_out(transaction, handle, stays=not handle_entry(handle).managed)


def take_out(transaction: Transaction, handle: Handle, *, stays: bool) -> None:
    """Takes a table out of the lake. What `stays` is a path table from then on."""
    entry = handle_entry(handle)
    transaction.discard(handle)
    transaction.change_name(DroppedTable(id=entry.id), {(entry.database, entry.name): None})
    if handle.is_new:
        return
    if stays:
        actions = detaching(transaction.open(handle).view)
        transaction.stage(handle, Change(operation=DETACH, actions=actions))
    transaction.after_commit(partial(_clear, transaction.engine, handle, stays=stays))


def _clear(engine: Engine, handle: Handle, *, stays: bool) -> None:
    """Removes what a dropped table leaves behind; what fails is done when the lake is opened."""
    engine.forget(handle)
    try:
        if not stays:
            handle.store.delete([stored.path for stored in handle.store.list("")])
        catalog_of(engine).cleaned(handle_entry(handle).id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", handle.name, error)


def handle_entry(handle: Handle) -> TableEntry:
    """The catalog's entry of a table of the lake."""
    assert handle.entry is not None
    return handle.entry


@contextmanager
def transaction_of(engine: Engine, session_number: Callable[[], int]) -> Iterator[Transaction]:
    """A transaction of its own, committed at the end of the block."""
    transaction = Transaction(
        id=engine.system.new_id(), engine=engine, session_number=session_number, explicit=False
    )
    try:
        yield transaction
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
