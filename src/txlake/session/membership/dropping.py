"""A table leaves the lake: what a dropped one leaves behind, and who finishes what was cut short.

Owns the order of the steps that a drop takes, in the table's log, its folder and the catalog.
"""

from __future__ import annotations

import logging
from functools import partial

from txlake.catalog import DroppedEntry
from txlake.catalog.commits import PendingTable
from txlake.commit.change import Change
from txlake.commit.membership import DETACH, detach_actions
from txlake.commit.publication import publish
from txlake.commit.reconciliation import newest_in_log
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.ports import DroppedTable, Store, VersionRange
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.catalog_access import handle_entry
from txlake.session.engine import Engine, Handle
from txlake.session.membership.drop_note import (
    DropNote,
    note_path,
    read_drop_note,
    retention_ms,
    write_drop_note,
)
from txlake.session.membership.ownership import owner_of
from txlake.session.transaction import Transaction
from txlake.sql.statements import TablePath
from txlake.storage import symlink_target

_logger = logging.getLogger(__name__)


def drop(transaction: Transaction, handle: Handle, *, purge: bool = False) -> None:
    """Takes a table out of the lake; its folder goes with it when it is the lake's own.

    It may come back for a while, and its folder stays as long, unless `purge`. Raises
    InvalidRequest where a symbolic link leads to that folder: it isn't the lake's.
    """
    engine, entry = transaction.engine, handle_entry(handle)
    if not engine.catalog.is_lake:  # what becomes of its folder is its catalog's business
        transaction.discard(handle)
        gone = DroppedTable(id=entry.id, keeps_files=True)
        transaction.change_name(gone, {(entry.database, entry.name): None})
        return
    if entry.managed:
        _require_in_warehouse(engine, handle.store, handle.name)
    kept_ms = (
        0 if purge else retention_ms(engine.catalog.of_lake(), engine.settings, entry.database)
    )
    remove_table(transaction, handle, keeps_files=not entry.managed, retention_ms=kept_ms)


def remove_table(
    transaction: Transaction, handle: Handle, *, keeps_files: bool, retention_ms: int = 0
) -> None:
    """Takes a table out of the lake. With `keeps_files` it is a path table from then on.

    `retention_ms`: for how long it may come back. Raises CorruptTable for a log that is ahead of
    the catalog: the name may be another table's now.
    """
    entry = handle_entry(handle)
    handle.log.exists()  # raises where it is ahead
    transaction.discard(handle)
    dropped = DroppedTable(id=entry.id, keeps_files=keeps_files, retention_ms=retention_ms)
    transaction.change_name(dropped, {(entry.database, entry.name): None})
    if handle.is_new:
        return
    if keeps_files:
        try:
            handle.log.require_published()  # its files may have been removed before its name
            actions = detach_actions(transaction.open(handle).view)
        except CorruptTable as error:
            _logger.warning("%s: its log isn't told that it was dropped: %s", handle.name, error)
        else:
            transaction.stage(handle, Change(operation=DETACH, actions=actions))
    if retention_ms:
        transaction.after_commit(partial(_retain_folder, transaction.engine, handle))
    else:
        transaction.after_commit(
            partial(_remove_folder, transaction.engine, handle, keeps_files=keeps_files)
        )


def _retain_folder(engine: Engine, handle: Handle) -> None:
    """Has a dropped table's folder say so, and removes those whose time is over.

    What fails is done when the lake is opened.
    """
    engine.forget(handle)
    catalog = engine.catalog.of_lake()
    try:
        catalog.ledger.sequence()  # raises where this isn't the lake's catalog any more
        dropped = catalog.dropped.find(handle_entry(handle).id)
        is_there = next(iter(handle.store.list(LOG_FOLDER)), None) is not None
        if dropped is not None and dropped.entry.managed and is_there:
            write_drop_note(catalog, handle.store, dropped)
        over = _expire_dropped(engine)
        for table in catalog.ledger.dropped_tables() if over else ():
            if table.table_id in over and (not table.managed or _is_its_folder(engine, table)):
                _finish_removal(engine, table)
    except TxlakeError as error:
        _logger.warning("%s: what its drop leaves to do is done later: %s", handle.name, error)


def _remove_folder(engine: Engine, handle: Handle, *, keeps_files: bool) -> None:
    """Removes what a dropped table leaves behind; what fails is done when the lake is opened."""
    engine.forget(handle)
    ledger, table_id = engine.catalog.of_lake().ledger, handle_entry(handle).id
    try:
        if not keeps_files:
            # Another process that finishes this notes it first, and finds no row when we're done.
            if not handle.store.excludes_late_writes:
                ledger.note_clearing(table_id)
            ledger.sequence()  # raises where this isn't the lake's catalog any more
            _delete_files(engine, handle.store, table_id)
        ledger.forget(table_id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", handle.name, error)


def finish_interrupted(engine: Engine) -> None:
    """Publishes what a process that was killed had committed, and removes what it had dropped.

    What was dropped so long ago that it can't come back any more is removed too. A table where that
    fails keeps no other from being used: its own statements say what is wrong.
    """
    ledger = engine.catalog.of_lake().ledger
    _write_drop_notes(engine)
    _expire_dropped(engine)
    skipped = _forget_replaced(engine)
    for table in ledger.pending_tables():
        if table.table_id in skipped:
            continue
        try:
            store = engine.store_at(table.location)
            publish(store, ledger, table.pending, table=store.url)
        except TxlakeError as error:
            _logger.warning("%s: its commits aren't published yet: %s", table.location, error)
    for table in ledger.dropped_tables():
        if table.table_id not in skipped and not table.is_retained:
            _finish_removal(engine, table)


def _finish_removal(engine: Engine, table: PendingTable) -> None:
    """Removes the folder of a table that was dropped, and its row in the catalog."""
    ledger = engine.catalog.of_lake().ledger
    try:
        if table.managed and ledger.note_clearing(table.table_id):
            _delete_files(engine, engine.store_at(table.location), table.table_id)
        ledger.forget(table.table_id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", table.location, error)


def publish_pending(engine: Engine, table_id: str) -> None:
    """Publishes what a table's log still lacks, in a folder that is seen to be that table's."""
    ledger = engine.catalog.of_lake().ledger
    table = next((one for one in ledger.pending_tables() if one.table_id == table_id), None)
    if table is not None and _is_its_folder(engine, table):
        store = engine.store_at(table.location)
        publish(store, ledger, table.pending, table=store.url)


def _write_drop_notes(engine: Engine) -> None:
    """Has the folders of dropped tables say so, where a process was killed before it did."""
    catalog = engine.catalog.of_lake()
    for table in catalog.ledger.dropped_tables():
        if not table.managed or table.has_drop_note:
            continue
        try:
            dropped = catalog.dropped.find(table.table_id)
            if dropped is not None and _is_its_folder(engine, table):
                write_drop_note(catalog, engine.store_at(table.location), dropped)
        except TxlakeError as error:
            _logger.warning("%s: it is told later of its drop: %s", table.location, error)


def _expire_dropped(engine: Engine) -> set[str]:
    """Ends the time of dropped tables that are kept past it; their ids.

    Where a folder doesn't say that its table was dropped when the catalog says, the catalog is one
    from a backup, and the table may have come back since: it is left alone.
    """
    catalog, over = engine.catalog.of_lake(), set()
    for dropped in catalog.dropped.expired():
        entry = dropped.entry
        try:
            if entry.managed and not _note_matches(engine.store_at(entry.location), dropped):
                _logger.warning(
                    "%s: the folder of dropped table %s.%s isn't removed: it doesn't say that the "
                    "table was dropped. lake.recover() takes in what is a table",
                    entry.location,
                    entry.database,
                    entry.name,
                )
                continue
            catalog.dropped.expire(entry.id)
            over.add(entry.id)
        except TxlakeError as error:
            _logger.warning("%s: its folder is removed later: %s", entry.location, error)
    return over


def _note_matches(store: Store, dropped: DroppedEntry) -> bool:
    """Whether a folder says of its table what the catalog does, or has no table any more."""
    note = DropNote.of(dropped)
    if read_drop_note(store, dropped.entry.id) == note:
        return newest_in_log(store, note.version) <= note.version
    return next(iter(store.list(LOG_FOLDER)), None) is None


def _forget_replaced(engine: Engine) -> set[str]:
    """Forgets dropped tables whose folder isn't theirs any more; the ids of those it couldn't.

    A catalog from a backup may remember a table as dropped in whose folder another was made since.
    """
    ledger = engine.catalog.of_lake().ledger
    skipped = set()
    for table in ledger.dropped_tables():
        try:
            if not table.managed or (table.is_retained and not table.pending):
                continue
            if _is_its_folder(engine, table):
                continue
            _logger.warning(
                "%s: a dropped table's folder is left alone: it can't be seen to be that table's",
                table.location,
            )
            if table.pending:
                first, last = table.pending[0].version, table.pending[-1].version
                ledger.record_publication({table.table_id: VersionRange(first, last)})
            ledger.forget(table.table_id)
        except TxlakeError as error:
            skipped.add(table.table_id)
            _logger.warning("%s: its folder is removed later: %s", table.location, error)
    return skipped


def _is_its_folder(engine: Engine, table: PendingTable) -> bool:
    """Whether a folder is still a dropped table's: its log says so, or who dropped it."""
    if engine.store_at(table.location).head(note_path(table.table_id)) is not None:
        return True
    handle = engine.at(table.location, TablePath(table.location))
    try:
        latest = handle.log.latest_or_none()
        own = None if latest is None else owner_of(engine, table.location, latest)
    except (CorruptTable, UnsupportedFeature):
        return False
    finally:
        engine.forget(handle)
    if latest is None:  # it was never published
        return bool(table.pending) and table.pending[0].version == 0
    return own is not None and own.table == table.table_id


def _require_in_warehouse(engine: Engine, store: Store, name: str) -> None:
    """Raises InvalidRequest unless a folder is in the warehouse where its path says."""
    warehouse = engine.warehouse
    assert warehouse is not None, "who has a catalog has a warehouse"
    found = symlink_target(warehouse.url, store.url)
    if found is not None:
        raise InvalidRequest(
            f"{name}: expected its folder {store.url} in the warehouse {warehouse.url} without a "
            f"symbolic link on the way, found it to be {found}; nothing there is deleted: move "
            "that folder to where the link is and try again, or keep it and give the table up "
            "by lake.detach"
        )


def _delete_files(engine: Engine, store: Store, table_id: str) -> None:
    """Removes a table's folder; what says whose it is goes last, for who finishes this."""
    _require_in_warehouse(engine, store, store.url)
    removal = note_path(table_id)
    store.put(removal, b"")
    paths = [stored.path for stored in store.list("") if stored.path != removal]
    store.delete([path for path in paths if not path.startswith(f"{LOG_FOLDER}/")])
    store.delete([path for path in paths if path.startswith(f"{LOG_FOLDER}/")])
    store.delete([removal])
