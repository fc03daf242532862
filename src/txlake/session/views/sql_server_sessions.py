"""SQL Server's views of sessions, of their requests and waits, and of their transactions.

Columns and values as documented by Microsoft Learn: "sys.dm_exec_sessions (Transact-SQL)",
"sys.dm_exec_requests (Transact-SQL)" and "sys.dm_tran_session_transactions (Transact-SQL)". The
catalog knows of a running statement only if the statement waits for a lock, has a transaction of
its own, or reads the view. Columns that a lake has no value for are NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from txlake.catalog.lock_entries import LockEntry
from txlake.conflict.levels import Level, parse_level
from txlake.conflict.locking import LockStatus, Resource, ResourceType
from txlake.session.views.view import EntrySource, RowValues, utc_time, view

_LEVELS = {
    Level.SERIALIZABLE: 4,
    Level.SNAPSHOT: 5,
}  # T-SQL has no WriteSerializable
_RUNNING, _SUSPENDED = "running", "suspended"


def _sessions(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each live session.

    `status` is "running" for one that is known to run a statement, else NULL. Reading the view may
    register the reading session.
    """
    own = entries.own_session()  # before `sessions`: this call may create the session's row
    sessions = entries.sessions()
    locks = entries.locks()
    begun = Counter(entry.session_id for entry in entries.transactions() if entry.explicit)
    busy = {own} | {entry.session_id for entry in locks if _waits(entry)}
    busy |= {entry.session_id for entry in entries.transactions() if not entry.explicit}
    used = {
        entry.session_id: entry.resource.database
        for entry in locks
        if entry.transaction_id is None and entry.resource.type is ResourceType.DATABASE
    }
    for entry in sessions:
        yield {
            "session_id": entry.id,
            "login_time": utc_time(entry.begin_ms),
            "host_name": entry.host,
            "host_process_id": entry.process,
            "login_name": entry.user_name,
            "original_login_name": entry.user_name,
            "status": _RUNNING if entry.id in busy else None,
            "is_user_process": True,
            "database_id": used.get(entry.id),
            "open_transaction_count": begun[entry.id],
        }


def _requests(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each statement that is known to run, the one that reads the view included.

    It waits for a lock ("suspended") or has a transaction of its own. `request_id` counts within a
    session from 0.
    """
    own = entries.own_session()
    transactions = {entry.id: entry for entry in entries.transactions()}
    begun = Counter(entry.session_id for entry in transactions.values() if entry.explicit)
    waiting = {entry.transaction_id: entry for entry in entries.locks() if _waits(entry)}
    numbers: Counter[int] = Counter()

    def request(session: int) -> dict[str, object]:
        """Return the columns of a session's next request."""
        numbers[session] += 1
        return {
            "session_id": session,
            "request_id": numbers[session] - 1,
            "status": _RUNNING,
            "open_transaction_count": begun[session],
        }

    for key, entry in transactions.items():
        wait = waiting.pop(key, None)
        if wait is None and entry.explicit:
            continue  # unknown whether a statement runs in the transaction
        level = None if entry.isolation is None else parse_level(entry.isolation)
        yield {
            **request(entry.session_id),
            **_wait(wait),
            "start_time": None if entry.explicit else utc_time(entry.begin_ms),
            "transaction_id": entry.number,
            "transaction_isolation_level": None if level is None else _LEVELS.get(level),
        }
    for wait in waiting.values():  # USE waits for its lock outside of transactions
        yield {**request(wait.session_id), **_wait(wait)}
    if own is not None and not numbers[own]:
        yield request(own)


def _waits(lock: LockEntry) -> bool:
    return lock.status is not LockStatus.GRANT


def _wait(lock: LockEntry | None) -> RowValues:
    """Return the columns of a request that waits for a lock; none for None."""
    if lock is None:
        return {}
    return {
        "status": _SUSPENDED,
        "database_id": lock.resource.database,
        "blocking_session_id": lock.blocking_session_id,
        "wait_type": f"LCK_M_{lock.mode.value.upper().replace('-', '_')}",
        "wait_resource": _resource(lock.resource),
    }


def _resource(resource: Resource) -> str:
    """Return a lock's resource as `wait_resource` has it: type, database and object numbers."""
    match resource.type:
        case ResourceType.DATABASE:
            return f"DATABASE: {resource.database}"
        case ResourceType.KEY:
            return f"KEY: {resource.database}:{resource.entity} ({resource.description})"
        case ResourceType.APPLICATION:
            return f"APPLICATION: {resource.database}:{resource.entity}:[{resource.description}]"
        case _:
            return f"{resource.type.value}: {resource.database}:{resource.entity}:0"


def _session_transactions(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each open transaction; `enlist_count` is 1 if a statement is known to run."""
    transactions = entries.transactions()
    begun = Counter(entry.session_id for entry in transactions if entry.explicit)
    waiting = {entry.transaction_id for entry in entries.locks() if _waits(entry)}
    for entry in transactions:
        is_busy = not entry.explicit or entry.id in waiting
        yield {
            "session_id": entry.session_id,
            "transaction_id": entry.number,
            "enlist_count": 1 if is_busy else None,
            "is_user_transaction": entry.explicit,
            "is_local": True,
            "is_enlisted": False,
            "is_bound": False,
            "open_transaction_count": begun[entry.session_id],
        }


_SETTINGS = """
    text_size INT, language STRING, date_format STRING, date_first SMALLINT,
    quoted_identifier BOOLEAN, arithabort BOOLEAN, ansi_null_dflt_on BOOLEAN,
    ansi_defaults BOOLEAN, ansi_warnings BOOLEAN, ansi_padding BOOLEAN, ansi_nulls BOOLEAN,
    concat_null_yields_null BOOLEAN, transaction_isolation_level SMALLINT, lock_timeout INT,
    deadlock_priority INT, row_count BIGINT, prev_error INT
"""
DM_EXEC_SESSIONS = view(
    "sys.dm_exec_sessions (Transact-SQL)",
    f"""
    session_id INT, login_time TIMESTAMP, host_name STRING, program_name STRING,
    host_process_id INT, client_version INT, client_interface_name STRING, security_id BINARY,
    login_name STRING, nt_domain STRING, nt_user_name STRING, status STRING, context_info BINARY,
    cpu_time INT, memory_usage INT, total_scheduled_time INT, total_elapsed_time INT,
    endpoint_id INT, last_request_start_time TIMESTAMP, last_request_end_time TIMESTAMP,
    reads BIGINT, writes BIGINT, logical_reads BIGINT, is_user_process BOOLEAN, {_SETTINGS},
    original_security_id BINARY, original_login_name STRING, last_successful_logon TIMESTAMP,
    last_unsuccessful_logon TIMESTAMP, unsuccessful_logons BIGINT, group_id INT, database_id INT,
    authenticating_database_id INT, open_transaction_count INT
    """,
    _sessions,
)
DM_EXEC_REQUESTS = view(
    "sys.dm_exec_requests (Transact-SQL)",
    f"""
    session_id INT, request_id INT, start_time TIMESTAMP, status STRING, command STRING,
    sql_handle BINARY, statement_start_offset INT, statement_end_offset INT, plan_handle BINARY,
    database_id INT, user_id INT, connection_id STRING, blocking_session_id INT, wait_type STRING,
    wait_time INT, last_wait_type STRING, wait_resource STRING, open_transaction_count INT,
    open_resultset_count INT, transaction_id BIGINT, context_info BINARY, percent_complete FLOAT,
    estimated_completion_time BIGINT, cpu_time INT, total_elapsed_time INT, scheduler_id INT,
    task_address BINARY, reads BIGINT, writes BIGINT, logical_reads BIGINT, {_SETTINGS},
    nest_level INT, granted_query_memory INT, executing_managed_code BOOLEAN, group_id INT,
    query_hash BINARY, query_plan_hash BINARY, statement_sql_handle BINARY,
    statement_context_id BIGINT, dop INT, parallel_worker_count INT,
    external_script_request_id STRING, is_resumable BOOLEAN
    """,
    _requests,
)
DM_TRAN_SESSION_TRANSACTIONS = view(
    "sys.dm_tran_session_transactions (Transact-SQL)",
    """
    session_id INT, transaction_id BIGINT, transaction_descriptor BINARY, enlist_count INT,
    is_user_transaction BOOLEAN, is_local BOOLEAN, is_enlisted BOOLEAN, is_bound BOOLEAN,
    open_transaction_count INT
    """,
    _session_transactions,
)
