"""Recover a catalog that was lost, or restored from a backup, from the logs of the tables.

Every published commit is kept. Owns the report of what the logs don't contain.
`commit.reconciliation` decides the versions of each table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from txlake.catalog import Catalog
from txlake.catalog.commits import PendingTable
from txlake.catalog.recovering import TableState
from txlake.commit.membership import Membership
from txlake.commit.reconciliation import (
    differs_from_catalog,
    newest_in_log,
    newest_readable,
    reconcile_log,
    set_aside_after,
)
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.ports import DroppedTable, NewTable, RenamedTable, Store
from txlake.protocol.file_names import LOG_FOLDER, STAGED_FOLDER, StagedCommit, parse_name
from txlake.session.catalog_access import transaction_of
from txlake.session.engine import Engine, RecoveryRequired
from txlake.session.membership.drop_note import DropNote, read_drop_note
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.membership.opening import MARKER, Marker, read_marker, write_marker
from txlake.session.membership.ownership import owner_of
from txlake.session.session import Session
from txlake.sql.statements import TableName, TablePath, table_of

_NOT_IN_LOGS = (
    "views, and databases' isolation levels, comments and properties: make and set them again",
    "transactions that were committed, and not published when the catalog was lost",
    "tables outside of the warehouse that weren't named: lake.attach takes them in again",
)
_NOT_IN_LOGS_OF_COPY = (
    "if the catalog is a copy: views, databases, their settings and DROPs since it was made",
    "if the catalog is a copy: transactions that were committed since then, and not published",
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The report of a recovery.

    Attributes:
        tables: the names of the tables that the catalog has again.
        done: the other changes, a sentence each.
        unknown: what could not be determined or repaired, a sentence each.
    """

    tables: tuple[str, ...]
    done: tuple[str, ...]
    unknown: tuple[str, ...]


def recover(session: Session, locations: tuple[str, ...]) -> Recovered:
    """Reconcile the catalog with the logs of the tables in the warehouse and at `locations`.

    If they agree, nothing is changed. Otherwise other processes are fenced off from the beginning
    on, and have to connect again. A table that can't be recovered is reported as unknown.

    Raises InvalidRequest if the catalog is another lake's, CorruptTable for an invalid marker of
    the warehouse, Unavailable if the catalog or a store can't be reached, or another process
    recovers it at the same time.
    """
    engine = session.engine
    catalog, warehouse = engine.catalog.of_lake(), engine.warehouse
    assert warehouse is not None
    places = {engine.store_at(place).url: False for place in locations}
    places = dict.fromkeys(_tables_below(warehouse), True) | places
    required = engine.recovery_required
    report = _Report(is_new=catalog.is_empty())
    if required is None and not _is_at_odds(engine, places, report):
        return report.result()
    marker = read_marker(warehouse)
    lake = catalog.lake_id if required is None else required.lake
    newest = max(catalog.epoch, 0 if marker is None else marker.epoch)
    epoch = catalog.recovery.begin(lake, newest + 1, session.number())
    engine.recovery_required = required or RecoveryRequired.unfinished(
        catalog.display_url, lake, epoch
    )
    write_marker(warehouse, Marker(lake, epoch))
    report = _Report(is_new=report.is_new, is_needed=True)
    states = catalog.recovery.table_states()
    for state in states:
        with report.collecting_errors(state.entry.location):
            _reconcile(session, epoch, state, report)
    for place in _unknown_places(catalog, places, states):
        with report.collecting_errors(place):
            _attach_unknown(session, epoch, place, report, managed=places[place])
    catalog.recovery.end(epoch)
    engine.recovery_required = None
    engine.forget_all()
    finish_interrupted(engine)
    return report.result()


@dataclass(slots=True, kw_only=True)
class _Report:
    """The report of a recovery under way.

    Attributes:
        is_new: the catalog had no table.
        is_needed: catalog and logs disagree, so that the catalog is changed.
    """

    is_new: bool
    is_needed: bool = False
    tables: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @contextmanager
    def collecting_errors(self, place: str) -> Iterator[None]:
        """Report a TxlakeError or a missing file of the block as unknown, instead of raising it."""
        try:
            yield
        except (TxlakeError, FileNotFoundError) as error:
            self.unknown.append(f"{place} isn't recovered: {error}")

    def result(self) -> Recovered:
        """Return the report, with what the logs never contain if the catalog was changed."""
        not_in_logs: tuple[str, ...] = ()
        if self.is_needed:
            not_in_logs = _NOT_IN_LOGS if self.is_new else _NOT_IN_LOGS_OF_COPY
        unknown = (*self.unknown, *not_in_logs)
        return Recovered(tuple(sorted(self.tables)), tuple(self.done), unknown)


def _tables_below(warehouse: Store) -> list[str]:
    """Return the URLs of the folders in the warehouse that have a log, sorted by path."""
    infix = f"/{LOG_FOLDER}/"
    folders = {
        stored.path.partition(infix)[0] for stored in warehouse.list("") if infix in stored.path
    }
    return [warehouse.at(folder).url for folder in sorted(folders)]


def _unknown_places(
    catalog: Catalog, places: Collection[str], states: Collection[TableState]
) -> list[str]:
    """Return the places that no table of the catalog has, on main or on a branch."""
    locations = {state.entry.location for state in states} | catalog.recovery.branch_locations()
    return [place for place in places if place not in locations]


def _is_dropped(engine: Engine, own: Membership, store: Store) -> bool:
    """Return whether a table is dropped in the catalog and wasn't undropped since.

    A catalog from a backup may have an undropped table as a retained one: then the folder's drop
    note, which the catalog has recorded, is missing.
    """
    if _find_dropped(engine, own.table) is None:
        return False
    if _current_note(store, own.table) is not None:
        return True
    # An UNDROP under way clears the record in the catalog before it removes the note.
    dropped = _find_dropped(engine, own.table)
    return dropped is not None and not (dropped.is_retained and dropped.has_drop_note)


def _find_dropped(engine: Engine, table_id: str) -> PendingTable | None:
    """Return the table with that id if it is dropped in the catalog, else None."""
    dropped = engine.catalog.of_lake().ledger.dropped_tables()
    return next((table for table in dropped if table.table_id == table_id), None)


def _current_note(store: Store, table_id: str) -> DropNote | None:
    """Return a table's drop note in its folder; None if there is none, or commits came after it."""
    note = read_drop_note(store, table_id)
    if note is None or newest_in_log(store, note.version) > note.version:
        return None
    return note


def _is_dropped_in_folder_only(engine: Engine, state: TableState) -> bool:
    """Return whether a table has a drop note and isn't dropped in the catalog.

    The catalog is from a backup then.
    """
    entry = state.entry
    if _current_note(engine.store_at(entry.location), entry.id) is None:
        return False
    return engine.catalog.of_lake().dropped.find(entry.id) is None  # else dropped just now


def _log_at(engine: Engine, place: str) -> TableLog:
    """Return the log at a place as a path table's, without the catalog's versions."""
    return engine.at(place, TablePath(place)).log


def _sound_snapshot(log: TableLog) -> Snapshot | None:
    """Return the snapshot at a log's newest readable version, ignoring invalid files after it.

    Returns None if there is no table, or only files that were written into a folder while it was
    being removed. Raises CorruptTable, UnsupportedFeature.
    """
    version = newest_readable(log)
    if version is None:
        log.latest_or_none()  # raises the error of an invalid log
        return None
    return log.snapshot(version)


def _is_at_odds(engine: Engine, places: Collection[str], report: _Report) -> bool:
    """Return whether the catalog has to be changed for some table.

    Its log has other versions than the catalog, it is dropped in only one of them, or a table of
    this lake is missing from the catalog. Tables whose logs can't be read are reported or ignored.
    Nothing is changed.
    """
    catalog = engine.catalog.of_lake()
    # Commits go on meanwhile: a log that is read before the catalog isn't ahead of it for that.
    newest = {
        state.entry.id: newest_in_log(_log_at(engine, state.entry.location).store, state.published)
        for state in catalog.recovery.table_states()
    }
    states = catalog.recovery.table_states()
    for state in states:
        with report.collecting_errors(state.entry.location):
            if _has_other_versions(engine, state, newest.get(state.entry.id, -1)):
                return True
            if _is_dropped_in_folder_only(engine, state):
                return True
    for place in _unknown_places(catalog, places, states):
        log = _log_at(engine, place)
        try:
            latest = _sound_snapshot(log)
            own = None if latest is None else owner_of(engine, place, latest)
        except (CorruptTable, UnsupportedFeature):
            continue  # a recovery couldn't repair the log
        if own is None:
            continue
        if own.lake != catalog.lake_id:
            if report.is_new:  # it may be this lake's: the warehouse's marker may be lost as well
                report.unknown.append(_other_lake_message(place, own))
            continue
        if _is_dropped(engine, own, log.store):
            continue
        if catalog.at_place(place) is not None:
            continue  # the table was undropped since the states were read
        if _current_note(log.store, own.table) is None:
            return True
    return False


def _has_other_versions(engine: Engine, state: TableState, newest: int) -> bool:
    """Return whether a table's log has other versions than the catalog (`differs_from_catalog`).

    `newest` is the log's newest version before the catalog was read. False for a table that was
    dropped meanwhile. Raises CorruptTable as `differs_from_catalog`.
    """
    store = _log_at(engine, state.entry.location).store
    try:
        return differs_from_catalog(
            store, state.head, state.published, state.pending, newest=newest
        )
    except CorruptTable:
        present = engine.catalog.of_lake().recovery.table_states()
        if any(other.entry.id == state.entry.id for other in present):
            raise
        return False  # the table was dropped since the states were read, its folder removed


def _reconcile(session: Session, epoch: int, state: TableState, report: _Report) -> None:
    """Make a table's versions, name and drop in the catalog the ones of its log and folder.

    A table whose log has another owner is removed from the catalog. The changes are reported.
    """
    engine, entry = session.engine, state.entry
    catalog, log = engine.catalog.of_lake(), _log_at(engine, entry.location)
    if differs_from_catalog(log.store, state.head, state.published, state.pending):
        require_epoch = partial(catalog.recovery.require, epoch)
        settled = reconcile_log(log, state.head, state.published, state.pending, require_epoch)
        catalog.recovery.settle(epoch, entry.id, settled.kept, settled.found)
        report.done += settled.summary
    if state.is_dropped:
        return
    name = str(TableName((entry.database, entry.name)))
    own = owner_of(engine, entry.location, log.latest())
    if own is None or (own.lake, own.table) != (catalog.lake_id, entry.id):
        with transaction_of(engine, session.number) as transaction:
            transaction.change_name(DroppedTable(id=entry.id, keeps_files=True), {})
        report.done.append(f"{name}: the log at {log.store.url} isn't this table's any more")
    elif (note := _current_note(log.store, entry.id)) is not None:
        _drop_again(session, state, note)
        report.done.append(f"{name} is dropped, as its folder says; UNDROP TABLE brings it back")
    elif own.name != name:
        database, table = _parts(own.name)
        catalog.create_database(database, if_not_exists=True)
        with transaction_of(engine, session.number) as transaction:
            renamed = RenamedTable(id=entry.id, database=database, name=table)
            transaction.change_name(renamed, {})
        report.done.append(f"{name} is {own.name} now, as its log says")


def _drop_again(session: Session, state: TableState, note: DropNote) -> None:
    """Drop a table again whose drop the catalog lost, with the retention of its note."""
    dropped = DroppedTable(
        id=state.entry.id,
        retention_ms=note.kept_until_ms - note.dropped_ms,
        dropped_ms=note.dropped_ms,
    )
    with transaction_of(session.engine, session.number) as transaction:
        transaction.change_name(dropped, {})


def _dropped_message(place: str, own: Membership) -> str:
    """Return the report's sentence about a table that was dropped, as its folder says."""
    return (
        f"{place} was {own.name}, and was dropped, as the folder says: lake.attach takes it in "
        "again; remove that folder if the table isn't wanted back"
    )


def _other_lake_message(place: str, other: Membership) -> str:
    """Return the report's sentence about a table whose log names another lake, and the way to
    take the table in if that is this lake under its lost id.
    """
    return (
        f"{place} belongs to lake {other.lake}, as {other.name}; when that is this lake, and its "
        f'marker was lost, write {{"lake": "{other.lake}"}} into {MARKER} of the warehouse, '
        "and recover with an empty catalog"
    )


def _attach_unknown(
    session: Session, epoch: int, place: str, report: _Report, *, managed: bool
) -> None:
    """Add a lake table that the catalog doesn't have, under the name that its log has.

    A table that can't be added is reported as unknown, and a dropped one isn't added. Staged
    commits that may have been ratified are reported too.
    """
    engine, log = session.engine, _log_at(session.engine, place)
    catalog = engine.catalog.of_lake()
    try:
        latest = _sound_snapshot(log)
        own = None if latest is None else owner_of(engine, place, latest)
    except (CorruptTable, UnsupportedFeature) as error:
        report.unknown.append(f"{place} can't be read: {error}")
        return
    if latest is None:
        report.unknown.append(
            f"{place} has a log without its newest commit, as it is left when a table is dropped "
            "that somebody still writes: remove that folder, unless the file was lost"
        )
        return
    if own is None:
        report.unknown.append(
            f"{place} is a table of no lake, or was attached to none: lake.attach takes it in"
        )
        return
    if own.lake != catalog.lake_id:
        report.unknown.append(_other_lake_message(place, own))
        return
    if _is_dropped(engine, own, log.store):
        return
    if _current_note(log.store, own.table) is not None:
        report.unknown.append(_dropped_message(place, own))
        return
    try:
        database, name = _parts(own.name)
    except InvalidRequest:
        report.unknown.append(f"{place}: its name {own.name!r} is no name of a table")
        return
    settled = set_aside_after(log, latest.version, partial(catalog.recovery.require, epoch))
    report.done += settled.summary
    try:
        catalog.create_database(database, if_not_exists=True)
        with transaction_of(engine, session.number) as transaction:
            entry = NewTable(
                id=own.table,
                database=database,
                name=name,
                location=place,
                managed=managed,
                head=settled.newest,
            )
            transaction.change_name(entry, {})
    except TxlakeError as error:
        report.unknown.append(f"{place} was {own.name}, and isn't any more: {error}")
        return
    report.tables.append(own.name)
    for staged in log.store.list(STAGED_FOLDER):
        match parse_name(staged.path):
            case StagedCommit(version, _) if version <= settled.newest:
                continue  # another engine's commit, which is published or wasn't ratified
        report.unknown.append(
            f"{own.name}: {staged.path} may hold a commit that was ratified and never published"
        )


def _parts(name: str) -> tuple[str, str]:
    """Return (database, table) of a name. Raises InvalidRequest for a name of another form."""
    table_name = table_of(name)
    if not isinstance(table_name, TableName) or len(table_name.parts) != 2:
        raise InvalidRequest(f"{name!r}: expected database.table")
    return table_name.parts[0], table_name.parts[1]
