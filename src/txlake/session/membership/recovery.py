"""A catalog that was lost, or put back from a backup, is brought up to the logs of the tables.

Owns what the logs can tell, and the list of what they can't: everything that is published stays.
What becomes of one table is `commit.reconciliation`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

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
from txlake.session.engine import Engine, Lost
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
    """What became of a catalog.

    Attributes:
        tables: the names of the tables that it has again.
        done: what was changed besides, a sentence each.
        unknown: what could not be known or mended, a sentence each.
    """

    tables: tuple[str, ...]
    done: tuple[str, ...]
    unknown: tuple[str, ...]


def recover(session: Session, locations: tuple[str, ...]) -> Recovered:
    """Brings the catalog up to the tables' logs, in the warehouse and at other places.

    Other processes are kept out from then on: they have to connect again. Nothing is done where the
    catalog and the logs agree.

    Raises InvalidRequest when the catalog is another lake's, Unavailable when it or a store can't
    be reached or another process recovers it at the same time.
    """
    engine = session.engine
    catalog, warehouse = engine.catalog.of_lake(), engine.warehouse
    assert warehouse is not None
    places = {engine.store_at(place).url: False for place in locations}
    places = dict.fromkeys(_tables_below(warehouse), True) | places
    lost = engine.lost
    report = _Report(is_new=catalog.is_empty())
    if lost is None and not _is_at_odds(engine, places, report):
        return report.result()
    marker = read_marker(warehouse)
    lake = catalog.lake_id if lost is None else lost.lake
    newest = max(catalog.epoch, 0 if marker is None else marker.epoch)
    epoch = catalog.recovery.begin(lake, newest + 1, session.number())
    engine.lost = lost or Lost.unfinished(catalog.display_url, lake, epoch)
    write_marker(warehouse, Marker(lake, epoch))
    report = _Report(is_new=report.is_new, is_needed=True)
    known = catalog.recovery.table_states()
    for state in known:
        with report.collecting_errors(state.entry.location):
            _reconcile(session, epoch, state, report)
    for place in _unknown(places, known):
        with report.collecting_errors(place):
            _attach_unknown(session, epoch, place, report, managed=places[place])
    catalog.recovery.end(epoch)
    engine.lost = None
    engine.forget_all()
    finish_interrupted(engine)
    return report.result()


@dataclass(slots=True, kw_only=True)
class _Report:
    """What is told in the end.

    Attributes:
        is_new: the catalog knew no table.
        is_needed: it is brought up; otherwise it was found to be so.
    """

    is_new: bool
    is_needed: bool = False
    tables: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @contextmanager
    def collecting_errors(self, place: str) -> Iterator[None]:
        """What goes wrong with one table keeps no other from being recovered."""
        try:
            yield
        except (TxlakeError, FileNotFoundError) as error:
            self.unknown.append(f"{place} isn't recovered: {error}")

    def result(self) -> Recovered:
        never: tuple[str, ...] = ()
        if self.is_needed:
            never = _NOT_IN_LOGS if self.is_new else _NOT_IN_LOGS_OF_COPY
        return Recovered(tuple(sorted(self.tables)), tuple(self.done), (*self.unknown, *never))


def _tables_below(warehouse: Store) -> list[str]:
    """The URLs of the folders below the warehouse that have a log."""
    mark = f"/{LOG_FOLDER}/"
    folders = {
        stored.path.partition(mark)[0] for stored in warehouse.list("") if mark in stored.path
    }
    return [warehouse.at(folder).url for folder in sorted(folders)]


def _unknown(places: Collection[str], known: Collection[TableState]) -> list[str]:
    """The places with a log that aren't those of the catalog's tables."""
    locations = {state.entry.location for state in known}
    return [place for place in places if place not in locations]


def _is_dropped(engine: Engine, own: Membership, store: Store) -> bool:
    """Whether the catalog dropped the table, and it didn't come back since.

    A catalog from a backup may have it as one that is kept, whose folder says so no more.
    """
    if _dropped_in(engine, own.table) is None:
        return False
    if _note(store, own.table) is not None:
        return True
    # Who takes it back just now notes that before the folder says so no more.
    now = _dropped_in(engine, own.table)
    return now is not None and not (now.is_retained and now.has_drop_note)


def _dropped_in(engine: Engine, table_id: str) -> PendingTable | None:
    """A table that the catalog has dropped."""
    dropped = engine.catalog.of_lake().ledger.dropped_tables()
    return next((table for table in dropped if table.table_id == table_id), None)


def _note(store: Store, table_id: str) -> DropNote | None:
    """What a folder says of a table that was dropped; None: nothing, or commits came after it."""
    note = read_drop_note(store, table_id)
    if note is None or newest_in_log(store, note.version) > note.version:
        return None
    return note


def _is_dropped_in_folder_only(engine: Engine, state: TableState) -> bool:
    """Whether a folder says that a table was dropped of which a catalog from a backup knows."""
    entry = state.entry
    if _note(engine.store_at(entry.location), entry.id) is None:
        return False
    return engine.catalog.of_lake().dropped.find(entry.id) is None  # it was dropped just now


def _log_at(engine: Engine, place: str) -> TableLog:
    """The log at a place as it stands there, whatever the catalog says."""
    return engine.at(place, TablePath(place)).log


def _sound_snapshot(log: TableLog) -> Snapshot | None:
    """The table that a log has, but for what is at its end and is no commit.

    None where there is none, or only what was written into a folder that was being removed. Raises
    CorruptTable, UnsupportedFeature.
    """
    version = newest_readable(log)
    if version is None:
        log.latest_or_none()  # raises what is wrong
        return None
    return log.snapshot(version)


def _is_at_odds(engine: Engine, places: Collection[str], report: _Report) -> bool:
    """Whether a log has other versions than the catalog, or is of a table that it doesn't know."""
    catalog = engine.catalog.of_lake()
    # Others may commit meanwhile: a log that is looked at before the catalog isn't ahead of it.
    newest = {
        one.entry.id: newest_in_log(_log_at(engine, one.entry.location).store, one.published)
        for one in catalog.recovery.table_states()
    }
    known = catalog.recovery.table_states()
    for one in known:
        with report.collecting_errors(one.entry.location):
            if _has_other_versions(engine, one, newest.get(one.entry.id, -1)):
                return True
            if _is_dropped_in_folder_only(engine, one):
                return True
    for place in _unknown(places, known):
        log = _log_at(engine, place)
        try:
            latest = _sound_snapshot(log)
            own = None if latest is None else owner_of(engine, place, latest)
        except (CorruptTable, UnsupportedFeature):
            continue  # nothing that a recovery could mend
        if own is None:
            continue
        if own.lake != catalog.lake_id:
            if report.is_new:  # perhaps its own, and the warehouse's marker was lost as well
                report.unknown.append(_other_lake_message(place, own))
            continue
        if _is_dropped(engine, own, log.store):
            continue
        if catalog.at_place(place) is not None:
            continue  # it came back since the catalog was asked
        if _note(log.store, own.table) is None:
            return True
    return False


def _has_other_versions(engine: Engine, one: TableState, newest: int) -> bool:
    """Whether a table's log has others than the catalog; as `differs_from_catalog`, which see."""
    store = _log_at(engine, one.entry.location).store
    try:
        return differs_from_catalog(store, one.head, one.published, one.pending, newest=newest)
    except CorruptTable:
        now = engine.catalog.of_lake().recovery.table_states()
        if any(other.entry.id == one.entry.id for other in now):
            raise
        return False  # it was dropped since the catalog was asked, and its folder is removed


def _reconcile(session: Session, epoch: int, state: TableState, report: _Report) -> None:
    """Gives a table that the catalog knows the versions and the name that its log has."""
    engine, entry = session.engine, state.entry
    catalog, log = engine.catalog.of_lake(), _log_at(engine, entry.location)
    if differs_from_catalog(log.store, state.head, state.published, state.pending):
        still = partial(catalog.recovery.require, epoch)
        settled = reconcile_log(log, state.head, state.published, state.pending, still)
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
    elif (note := _note(log.store, entry.id)) is not None:
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
    """Drops a table of which the catalog forgot that it was dropped; it is kept as long."""
    dropped = DroppedTable(
        id=state.entry.id,
        retention_ms=note.kept_until_ms - note.dropped_ms,
        dropped_ms=note.dropped_ms,
    )
    with transaction_of(session.engine, session.number) as transaction:
        transaction.change_name(dropped, {})


def _dropped_message(place: str, own: Membership) -> str:
    return (
        f"{place} was {own.name}, and was dropped, as the folder says: lake.attach takes it in "
        "again; remove that folder if the table isn't wanted back"
    )


def _other_lake_message(place: str, own: Membership) -> str:
    return (
        f"{place} belongs to lake {own.lake}, as {own.name}; when that is this lake, and its "
        f'marker was lost, write {{"lake": "{own.lake}"}} into {MARKER} of the warehouse, '
        "and recover with an empty catalog"
    )


def _attach_unknown(
    session: Session, epoch: int, place: str, report: _Report, *, managed: bool
) -> None:
    """Gives a table of the lake that the catalog doesn't know its name again."""
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
    if _note(log.store, own.table) is not None:
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
                continue  # another engine's, which is published or wasn't ratified
        report.unknown.append(
            f"{own.name}: {staged.path} may hold a commit that was ratified and never published"
        )


def _parts(name: str) -> tuple[str, str]:
    """Database and table. Raises InvalidRequest for what is no such name."""
    named = table_of(name)
    if not isinstance(named, TableName) or len(named.parts) != 2:
        raise InvalidRequest(f"{name!r}: expected database.table")
    return named.parts[0], named.parts[1]
