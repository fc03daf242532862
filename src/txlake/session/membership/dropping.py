"""Drop tables: remove or retain their folders, and finish drops that were interrupted.

Owns the order of a drop's steps, in the table's log, its folder and the catalog.
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
from txlake.session.membership.ownership import own_files, owner_of
from txlake.session.transaction import Transaction
from txlake.sql.statements import TablePath
from txlake.storage import symlink_target

_logger = logging.getLogger(__name__)


def drop(transaction: Transaction, handle: Handle, *, purge: bool = False) -> None:
    """Stage the drop of a table, whose folder is removed later if the lake manages it.

    The table can be undropped until its retention ends, when the folder is removed; with `purge` it
    is removed right after the commit. An external table's files stay, as a path table. A table of
    another system's catalog only loses its name: that catalog decides about the files. So does a
    table that a branch began with: the files are its origin's too.

    Raises InvalidRequest if a managed table's folder is reached through a symbolic link, as its
    files aren't the lake's.
    """
    engine, entry = transaction.engine, handle_entry(handle)
    if not engine.catalog.is_lake or entry.origin_id is not None:
        transaction.discard(handle)
        dropped = DroppedTable(id=entry.id, keeps_files=True)
        transaction.change_name(dropped, {(entry.database, entry.name): None})
        return
    if entry.managed:
        _require_in_warehouse(engine, handle.store, handle.name)
    retained_ms = (
        0 if purge else retention_ms(engine.catalog.of_lake(), engine.settings, entry.database)
    )
    remove_table(transaction, handle, keeps_files=not entry.managed, retention_ms=retained_ms)


def remove_table(
    transaction: Transaction, handle: Handle, *, keeps_files: bool, retention_ms: int = 0
) -> None:
    """Stage the removal of a table; with `keeps_files` it is a path table from then on.

    `retention_ms` is how long the table can be undropped; with 0 the folder is removed after the
    commit unless `keeps_files`. A log whose files are gone can't record the removal, which is
    logged. Raises CorruptTable for a log that is ahead of the catalog: the name may be another
    table's now.
    """
    entry = handle_entry(handle)
    handle.log.exists()  # raises if the log is ahead
    transaction.discard(handle)
    dropped = DroppedTable(id=entry.id, keeps_files=keeps_files, retention_ms=retention_ms)
    transaction.change_name(dropped, {(entry.database, entry.name): None})
    if handle.is_new:
        return
    if keeps_files:
        try:
            handle.log.require_published()  # raises if the log's files are gone
            actions = detach_actions(transaction.open(handle).view)
        except CorruptTable as error:
            _logger.warning("%s: its log doesn't record the drop: %s", handle.name, error)
        else:
            transaction.stage(handle, Change(operation=DETACH, actions=actions))
    if retention_ms:
        transaction.after_commit(partial(_retain_folder, transaction.engine, handle))
    else:
        transaction.after_commit(
            partial(_remove_folder, transaction.engine, handle, keeps_files=keeps_files)
        )


def _retain_folder(engine: Engine, handle: Handle) -> None:
    """Write the drop note into a dropped table's folder, and remove expired tables.

    A step that fails is logged, and done again when the lake is opened.
    """
    engine.forget(handle)
    catalog = engine.catalog.of_lake()
    try:
        catalog.ledger.sequence()  # raises if the catalog was recovered or restored meanwhile
        dropped = catalog.dropped.find(handle_entry(handle).id)
        is_there = next(iter(handle.store.list(LOG_FOLDER)), None) is not None
        if dropped is not None and dropped.entry.managed and is_there:
            write_drop_note(catalog, handle.store, dropped)
        expired = _expire_dropped(engine)
        for table in catalog.ledger.dropped_tables() if expired else ():
            if table.table_id in expired and (not table.managed or _has_its_folder(engine, table)):
                _finish_removal(engine, table)
    except TxlakeError as error:
        _logger.warning("%s: its drop is finished later: %s", handle.name, error)


def _remove_folder(engine: Engine, handle: Handle, *, keeps_files: bool) -> None:
    """Remove a dropped table's folder, unless `keeps_files`, and its row in the catalog.

    A step that fails is logged, and done again when the lake is opened. So is the removal of what a
    branch has too.
    """
    engine.forget(handle)
    ledger, table_id = engine.catalog.of_lake().ledger, handle_entry(handle).id
    try:
        if not keeps_files:
            if engine.catalog.of_lake().is_used(handle.store.url):
                return  # a branch has the table
            # Another process that finishes this drop notes it too, unless the row is gone by then.
            if not handle.store.excludes_late_writes:
                ledger.note_clearing(table_id)
            ledger.sequence()  # raises if the catalog was recovered or restored meanwhile
            _delete_files(engine, handle.store, table_id)
        ledger.forget(table_id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", handle.name, error)


def finish_interrupted(engine: Engine) -> None:
    """Publish the commits, and finish the drops, of processes that were killed.

    Also removes dropped tables whose retention has ended. A table for which a step fails is logged
    and skipped: statements on it raise the error.
    """
    ledger = engine.catalog.of_lake().ledger
    _write_drop_notes(engine)
    _expire_dropped(engine)
    skipped = _forget_replaced(engine)
    for table in ledger.pending_tables():
        if table.table_id in skipped:
            continue
        try:
            store = engine.store_of(table.location, table.chain)
            publish(store, ledger, table.pending, table=store.url)
        except TxlakeError as error:
            _logger.warning("%s: its commits aren't published yet: %s", table.location, error)
    for table in ledger.dropped_tables():
        if table.table_id not in skipped and not table.is_retained:
            _finish_removal(engine, table)


def _finish_removal(engine: Engine, table: PendingTable) -> None:
    """Remove a dropped table's folder, if the lake owns it, and its row; log if that fails."""
    ledger = engine.catalog.of_lake().ledger
    try:
        if table.managed:
            if engine.catalog.of_lake().is_used(table.location):
                return  # a branch has the table
            if ledger.note_clearing(table.table_id):
                _delete_files(engine, engine.store_at(table.location), table.table_id)
        ledger.forget(table.table_id)
    except TxlakeError as error:
        _logger.warning("%s: its folder is removed later: %s", table.location, error)


def publish_pending(engine: Engine, table_id: str) -> None:
    """Publish a table's pending commits, if its folder is still the table's."""
    ledger = engine.catalog.of_lake().ledger
    table = next((table for table in ledger.pending_tables() if table.table_id == table_id), None)
    if table is not None and _has_its_folder(engine, table):
        store = engine.store_of(table.location, table.chain)
        publish(store, ledger, table.pending, table=store.url)


def _write_drop_notes(engine: Engine) -> None:
    """Write the drop notes that are missing because a process was killed; log failures."""
    catalog = engine.catalog.of_lake()
    for table in catalog.ledger.dropped_tables():
        if not table.managed or table.has_drop_note:
            continue
        try:
            dropped = catalog.dropped.find(table.table_id)
            if dropped is not None and _has_its_folder(engine, table):
                write_drop_note(catalog, engine.store_at(table.location), dropped)
        except TxlakeError as error:
            _logger.warning("%s: its drop note is written later: %s", table.location, error)


def _expire_dropped(engine: Engine) -> set[str]:
    """End the retention of expired dropped tables, and return their ids.

    A table whose folder has no matching drop note is skipped: the catalog is from a backup, and the
    table may have been undropped since.
    """
    catalog, expired = engine.catalog.of_lake(), set()
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
            expired.add(entry.id)
        except TxlakeError as error:
            _logger.warning("%s: its folder is removed later: %s", entry.location, error)
    return expired


def _note_matches(store: Store, dropped: DroppedEntry) -> bool:
    """Return whether a folder may be removed as a dropped table's.

    That is so if its drop note is the catalog's and no commit came after it, or it has no log.
    """
    note = DropNote.of(dropped)
    if read_drop_note(store, dropped.entry.id) == note:
        return newest_in_log(store, note.version) <= note.version
    return next(iter(store.list(LOG_FOLDER)), None) is None


def _forget_replaced(engine: Engine) -> set[str]:
    """Remove the rows of dropped tables whose folder isn't theirs any more.

    A catalog from a backup may have a table as dropped in whose folder another was created since.
    Returns the ids of the tables for which this failed.
    """
    ledger = engine.catalog.of_lake().ledger
    skipped = set()
    for table in ledger.dropped_tables():
        try:
            if not table.managed or (table.is_retained and not table.pending):
                continue
            if _has_its_folder(engine, table):
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


def _has_its_folder(engine: Engine, table: PendingTable) -> bool:
    """Return whether the folder at a dropped table's location is still that table's.

    Its drop note or its log shows that; False if the log can't be read.
    """
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
    if latest is None:  # the table was never published
        return bool(table.pending) and table.pending[0].version == 0
    return own is not None and own.table == table.table_id


def _require_in_warehouse(engine: Engine, store: Store, name: str) -> None:
    """Raise InvalidRequest if a symbolic link leads from the warehouse to a table's folder."""
    warehouse = engine.warehouse
    assert warehouse is not None, "a lake with a catalog has a warehouse"
    target = symlink_target(warehouse.url, store.url)
    if target is not None:
        raise InvalidRequest(
            f"{name}: expected its folder {store.url} in the warehouse {warehouse.url} without a "
            f"symbolic link on the way, found it to be {target}; nothing there is deleted: move "
            "that folder to where the link is and try again, or keep it and give the table up "
            "by lake.detach"
        )


def _delete_files(engine: Engine, store: Store, table_id: str) -> None:
    """Delete the files of a table in its folder: data files, then the log, then the drop note.

    Other tables and lakes below stay. The log and the note name the table, so that another process
    can finish an interrupted deletion.
    Raises InvalidRequest if a symbolic link leads to the folder.
    """
    _require_in_warehouse(engine, store, store.url)
    note = note_path(table_id)
    store.put(note, b"")
    paths = [path for path in own_files(store) if path != note]
    store.delete([path for path in paths if not path.startswith(f"{LOG_FOLDER}/")])
    store.delete([path for path in paths if path.startswith(f"{LOG_FOLDER}/")])
    store.delete([note])
