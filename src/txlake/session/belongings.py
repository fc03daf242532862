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
from txlake.catalog.commits import PendingTable
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.ports import DroppedTable, NewTable, Store, Versions
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.statements import TableName, TablePath
from txlake.storage import led_out
from txlake.transaction.belonging import (
    ATTACH,
    DETACH,
    Belonging,
    attaching,
    belonging_of,
    detaching,
)
from txlake.transaction.change import Change
from txlake.transaction.publication import publish
from txlake.transaction.table_transaction import TableTransaction

_logger = logging.getLogger(__name__)


def catalog_of(engine: Engine) -> Catalog:
    """The lake's catalog. Raises InvalidRequest where there is none."""
    if engine.catalog is None:
        raise InvalidRequest("there is no lake here; open one with txlake.connect")
    return engine.catalog


def refuse_lost(engine: Engine) -> None:
    """Raises InvalidRequest or CorruptTable for a lake whose catalog isn't recovered yet."""
    if engine.lost is not None:
        raise type(engine.lost.error)(str(engine.lost.error))


def new_entry(
    engine: Engine, database: str, name: str, location: str, *, managed: bool
) -> TableEntry:
    """The entry of a table that the catalog doesn't have yet, in a database that it has."""
    catalog, now_ms = catalog_of(engine), engine.system.now_ms()
    owner = catalog.database(database)
    if owner is None:
        raise InvalidRequest(
            f"there is no database {database!r}; CREATE DATABASE {database} makes it"
        )
    return TableEntry(
        id=engine.system.new_id(),
        number=catalog.new_number(),
        database=owner.name,
        database_number=owner.number,
        name=name,
        location=location,
        managed=managed,
        created_ms=now_ms,
        modified_ms=now_ms,
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
    if catalog.views.find(database, name) is not None:
        raise InvalidRequest(f"{database}.{name} is a view; choose another name")
    latest = handle.log.latest()
    own = belonging_of(latest)
    if own is not None and own.lake != catalog.lake_id:
        raise InvalidRequest(
            f"{handle.store.url} belongs to another lake ({own.lake}), as {own.name}; detach it "
            "there first"
        )
    entry = new_entry(engine, database, name, handle.store.url, managed=managed)
    return _take_in(engine, session_number, handle, entry)


def _take_in(
    engine: Engine, session_number: Callable[[], int], handle: Handle, entry: TableEntry
) -> TableEntry:
    """Stamps the table and enters it into the catalog."""
    catalog, latest = catalog_of(engine), handle.log.latest()
    own = belonging_of(latest)
    name = str(TableName((entry.database, entry.name)))
    if own is None:
        head = _stamped(handle, Belonging(lake=catalog.lake_id, table=entry.id, name=name))
    else:  # an attachment that was cut short, or a table that the catalog lost
        entry, head = replace(entry, id=own.table), latest.version
    with transaction_of(engine, session_number) as transaction:
        named = NewTable(
            id=entry.id,
            database=entry.database,
            name=entry.name,
            location=entry.location,
            managed=entry.managed,
            head=head,
            number=entry.number,
        )
        transaction.change_name(named, {})
    found = catalog.find(entry.database, entry.name)
    assert found is not None
    if own is not None and own.name != name:
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
    """Takes a table out of the lake; its folder goes with it when it is the lake's own.

    Raises InvalidRequest where a symbolic link leads to that folder: it isn't the lake's.
    """
    if handle_entry(handle).managed:
        _require_own(transaction.engine, handle.store, handle.name)
    take_out(transaction, handle, stays=not handle_entry(handle).managed)


def take_out(transaction: Transaction, handle: Handle, *, stays: bool) -> None:
    """Takes a table out of the lake. What `stays` is a path table from then on.

    Raises CorruptTable for a log that is ahead of the catalog: the name may be another table's now.
    """
    entry = handle_entry(handle)
    handle.log.exists()  # raises where it is ahead
    transaction.discard(handle)
    dropped = DroppedTable(id=entry.id, stays=stays)
    transaction.change_name(dropped, {(entry.database, entry.name): None})
    if handle.is_new:
        return
    if stays:
        try:
            actions = detaching(transaction.open(handle).view)
        except CorruptTable as error:
            _logger.warning("%s: its log isn't told that it was dropped: %s", handle.name, error)
        else:
            transaction.stage(handle, Change(operation=DETACH, actions=actions))
    transaction.after_commit(partial(_clear, transaction.engine, handle, stays=stays))


def _clear(engine: Engine, handle: Handle, *, stays: bool) -> None:
    """Removes what a dropped table leaves behind; what fails is done when the lake is opened."""
    engine.forget(handle)
    ledger, table_id = catalog_of(engine).ledger, handle_entry(handle).id
    try:
        if not stays:
            # Whoever finishes this in our place notes it first, and finds no row when we're done.
            if not handle.store.is_prompt:
                ledger.note_clearing(table_id)
            ledger.sequence()  # raises where this isn't the lake's catalog any more
            _remove_all(engine, handle.store, table_id)
        ledger.forget(table_id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", handle.name, error)


def finish(engine: Engine) -> None:
    """Publishes what a process that was killed had committed, and removes what it had dropped.

    A table where that fails keeps no other from being used: its own statements say what is wrong.
    """
    ledger = catalog_of(engine).ledger
    left_alone = _give_up_others(engine)
    for table in ledger.pending_tables():
        if table.table_id in left_alone:
            continue
        try:
            store = engine.store_at(table.location)
            publish(store, ledger, table.pending, table=store.url)
        except TxlakeError as error:
            _logger.warning("%s: its commits aren't published yet: %s", table.location, error)
    for table in ledger.dropped_tables():
        if table.table_id in left_alone:
            continue
        try:
            if table.managed and ledger.note_clearing(table.table_id):
                _remove_all(engine, engine.store_at(table.location), table.table_id)
            ledger.forget(table.table_id)
        except TxlakeError as error:
            _logger.warning("%s: its folder is removed later: %s", table.location, error)


def _give_up_others(engine: Engine) -> set[str]:
    """Forgets dropped tables whose folder isn't theirs any more; the ids of those it couldn't.

    A catalog from a backup may remember a table as dropped in whose folder another was made since.
    """
    ledger = catalog_of(engine).ledger
    left_alone = set()
    for table in ledger.dropped_tables():
        try:
            if not table.managed or _is_its_folder(engine, table):
                continue
            _logger.warning(
                "%s: a dropped table's folder is left alone: it can't be seen to be that table's",
                table.location,
            )
            if table.pending:
                first, last = table.pending[0].version, table.pending[-1].version
                ledger.publishes({table.table_id: Versions(first, last)})
            ledger.forget(table.table_id)
        except TxlakeError as error:
            left_alone.add(table.table_id)
            _logger.warning("%s: its folder is removed later: %s", table.location, error)
    return left_alone


def _is_its_folder(engine: Engine, table: PendingTable) -> bool:
    """Whether a folder is still a dropped table's: its log says so, or who began to remove it."""
    if engine.store_at(table.location).head(_removal(table.table_id)) is not None:
        return True
    handle = engine.at(table.location, TablePath(table.location))
    try:
        latest = handle.log.latest_or_none()
        own = None if latest is None else belonging_of(latest)
    except (CorruptTable, UnsupportedFeature):
        return False
    finally:
        engine.forget(handle)
    if latest is None:  # it was never published
        return bool(table.pending) and table.pending[0].version == 0
    return own is not None and own.table == table.table_id


def _require_own(engine: Engine, store: Store, name: str) -> None:
    """Raises InvalidRequest unless a folder is in the warehouse where its path says."""
    warehouse = engine.warehouse
    assert warehouse is not None, "who has a catalog has a warehouse"
    found = led_out(warehouse.url, store.url)
    if found is not None:
        raise InvalidRequest(
            f"{name}: expected its folder {store.url} in the warehouse {warehouse.url} without a "
            f"symbolic link on the way, found it to be {found}; nothing there is deleted: move "
            "that folder to where the link is and try again, or keep it and give the table up "
            "by lake.detach"
        )


def _remove_all(engine: Engine, store: Store, table_id: str) -> None:
    """Removes a table's folder; what says whose it is goes last, for who finishes this."""
    _require_own(engine, store, store.url)
    removal = _removal(table_id)
    store.put(removal, b"")
    paths = [stored.path for stored in store.list("") if stored.path != removal]
    store.delete([path for path in paths if not path.startswith(f"{LOG_FOLDER}/")])
    store.delete([path for path in paths if path.startswith(f"{LOG_FOLDER}/")])
    store.delete([removal])


def _removal(table_id: str) -> str:
    """The file that says whose a folder is while it is removed."""
    return f"{LOG_FOLDER}/_dropped.{table_id}"


def attach_named(engine: Engine, session_number: Callable[[], int]) -> None:
    """Attaches the tables that an older txlake knew by name alone; those that are gone stay."""
    for entry in catalog_of(engine).unattached():
        place = TablePath(entry.location)
        handle = engine.at(entry.location, place)
        if handle.log.latest_or_none() is not None:
            _take_in(engine, session_number, handle, entry)


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
