"""Redshift's views of isolation levels, databases, tables, locks and conflicts.

Columns and values as in the Amazon Redshift Database Developer Guide:
"STV_DB_ISOLATION_LEVEL", "PG_DATABASE_INFO", "SVV_TABLES", "SVV_TRANSACTIONS", "STV_LOCKS" and
"STL_TR_CONFLICT", and "Isolation levels in Amazon Redshift" for `concurrency_model`; the lock modes
are PostgreSQL's with the same conflicts ("Explicit Locking"). Names are folded to lower case, as in
Redshift. Columns that a lake has no value for are NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlake.catalog import DatabaseEntry
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.conflict.locking import LockMode, LockStatus, ResourceType
from txlake.session.views.information_schema import CATALOG
from txlake.session.views.view import EntrySource, RowValues, utc_time, view

_LEVELS = {
    Level.SERIALIZABLE: "Serializable",
    Level.SNAPSHOT: "Snapshot Isolation",
    Level.WRITE_SERIALIZABLE: "WriteSerializable",  # has no counterpart in Redshift
}
_MODELS = {Level.SNAPSHOT: "1", Level.SERIALIZABLE: "2"}
_MODES = {
    LockMode.SCH_S: "AccessShareLock",
    LockMode.IS: "RowShareLock",
    LockMode.IX: "RowExclusiveLock",
    LockMode.U: "ShareUpdateExclusiveLock",
    LockMode.S: "ShareLock",
    LockMode.SIX: "ShareRowExclusiveLock",
    LockMode.X: "ExclusiveLock",
    LockMode.SCH_M: "AccessExclusiveLock",
}
_READS = frozenset({LockMode.SCH_S, LockMode.IS, LockMode.S})


def _isolation_levels(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each database, with the level that it requires or the default."""
    for entry in entries.databases():
        yield {
            "db_id": entry.number,
            "db_name": entry.name.lower(),
            "isolation_level": _LEVELS[_level(entry)],
        }


def _database_infos(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each database; its `datconfig` is NULL at WriteSerializable."""
    for entry in entries.databases():
        model = _MODELS.get(_level(entry))
        yield {
            "datname": entry.name.lower(),
            "datid": entry.number,
            "datistemplate": False,
            "datallowconn": True,
            "datconfig": None if model is None else [f"concurrency_model={model}"],
            "datconnlimit": "-1",
        }


def _level(database: DatabaseEntry) -> Level:
    isolation = database.isolation
    return strictest(None if isolation is None else parse_level(isolation))


def _transactions(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a `transactionid` row for each transaction, a `relation` row for each table lock."""
    names = {entry.number: entry.name.lower() for entry in entries.databases()}
    locks = [entry for entry in entries.locks() if entry.resource.type is ResourceType.OBJECT]
    for transaction in entries.transactions():
        common = {
            "txn_owner": transaction.user_name,
            "xid": transaction.number,
            "pid": transaction.process,
            "txn_start": utc_time(transaction.begin_ms),
        }
        for entry in locks:
            if entry.transaction_id == transaction.id:
                yield {
                    **common,
                    "txn_db": names.get(entry.resource.database),
                    "lock_mode": _MODES[entry.mode],
                    "lockable_object_type": "relation",
                    "relation": entry.resource.entity,
                    "granted": entry.status is LockStatus.GRANT,
                }
        yield {
            **common,
            "lock_mode": "ExclusiveLock",
            "lockable_object_type": "transactionid",
            "granted": True,
        }


def _tables(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table, then for each view."""
    for entry in entries.tables():
        yield {
            "table_catalog": CATALOG,
            "table_schema": entry.database.lower(),
            "table_name": entry.name.lower(),
            "table_type": "BASE TABLE" if entry.managed else "EXTERNAL TABLE",
        }
    for view_entry in entries.views():
        yield {
            "table_catalog": CATALOG,
            "table_schema": view_entry.database.lower(),
            "table_name": view_entry.name.lower(),
            "table_type": "VIEW",
            "remarks": view_entry.comment,
        }


def _locks(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table that a transaction writes, or waits to write.

    A transaction has a row for each of its locks on the table that isn't only for reading.
    """
    transactions = {entry.id: entry for entry in entries.transactions()}
    ids = {entry.number: entry.id for entry in entries.tables()}
    committed: dict[str, int] = {}
    for commit in entries.commits():
        committed.setdefault(commit.table_id, commit.time_ms)  # the newest comes first
    for entry in entries.locks():
        is_turn = bool(entry.resource.subtype)  # its transaction also has a lock on the table
        if entry.resource.type is not ResourceType.OBJECT or entry.mode in _READS or is_turn:
            continue
        owner = transactions.get(entry.transaction_id or "")
        is_granted = entry.status is LockStatus.GRANT
        yield {
            "table_id": entry.resource.entity,
            "last_commit": utc_time(committed.get(ids.get(entry.resource.entity, ""))),
            "lock_owner": entry.transaction_number,
            "lock_owner_pid": None if owner is None else owner.process,
            "lock_owner_start_ts": None if owner is None else utc_time(owner.begin_ms),
            "lock_status": "Holding write lock" if is_granted else "Waiting for write lock",
        }


def _conflicts(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each recent conflict, the oldest first.

    `table_id` is NULL without evidence, and for a table that doesn't exist any more.
    """
    numbers = {f"{entry.database}.{entry.name}".lower(): entry.number for entry in entries.tables()}
    for entry in reversed(entries.conflicts()):
        table = "" if entry.evidence is None else entry.evidence.table.lower()
        yield {
            "xact_id": entry.transaction_number,
            "process_id": entry.process,
            "xact_start_ts": utc_time(entry.begin_ms),
            "abort_time": utc_time(entry.time_ms),
            "table_id": numbers.get(table),
        }


STV_DB_ISOLATION_LEVEL = view(
    "STV_DB_ISOLATION_LEVEL - Amazon Redshift",
    "db_id BIGINT, db_name STRING, isolation_level STRING",
    _isolation_levels,
)
PG_DATABASE_INFO = view(
    "PG_DATABASE_INFO - Amazon Redshift",
    """
    datname STRING, datid BIGINT, datdba INT, encoding INT, datistemplate BOOLEAN,
    datallowconn BOOLEAN, datlastsysoid BIGINT, datvacuumxid BIGINT, datfrozenxid BIGINT,
    dattablespace BIGINT, datconfig ARRAY<STRING>, datacl ARRAY<STRING>, datconnlimit STRING
    """,
    _database_infos,
)
SVV_TRANSACTIONS = view(
    "SVV_TRANSACTIONS - Amazon Redshift",
    """
    txn_owner STRING, txn_db STRING, xid BIGINT, pid INT, txn_start TIMESTAMP, lock_mode STRING,
    lockable_object_type STRING, relation INT, granted BOOLEAN
    """,
    _transactions,
)
SVV_TABLES = view(
    "SVV_TABLES - Amazon Redshift",
    """
    table_catalog STRING, table_schema STRING, table_name STRING, table_type STRING,
    remarks STRING
    """,
    _tables,
)
STV_LOCKS = view(
    "STV_LOCKS - Amazon Redshift",
    """
    table_id BIGINT, last_commit TIMESTAMP, last_update TIMESTAMP, lock_owner BIGINT,
    lock_owner_pid BIGINT, lock_owner_start_ts TIMESTAMP, lock_owner_end_ts TIMESTAMP,
    lock_status STRING
    """,
    _locks,
)
"""`last_commit` is known for the newest thousand versions."""

STL_TR_CONFLICT = view(
    "STL_TR_CONFLICT - Amazon Redshift",
    """
    xact_id BIGINT, process_id BIGINT, xact_start_ts TIMESTAMP, abort_time TIMESTAMP,
    table_id BIGINT
    """,
    _conflicts,
)
