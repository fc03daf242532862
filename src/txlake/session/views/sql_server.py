"""SQL Server's views of locks, transactions and objects.

Columns and values as documented by Microsoft Learn: "sys.dm_tran_locks (Transact-SQL)",
"sys.dm_tran_active_transactions (Transact-SQL)", "sys.objects (Transact-SQL)", "sys.tables
(Transact-SQL)", "sys.schemas (Transact-SQL)", "sys.columns (Transact-SQL)" and "sys.databases
(Transact-SQL)"; the types of columns as the SQL analytics endpoint of Microsoft Fabric maps Delta's
("Data types in Microsoft Fabric"). A lake's databases stand for schemas: `schema_id` is a
database's number. Columns that a lake has no value for are NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from txlake.catalog import TableEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.catalog.views import ViewEntry
from txlake.conflict.locking import LockStatus, ResourceType
from txlake.ddl.stored_expressions import CURRENT_DEFAULT, GENERATION
from txlake.protocol.type_text import declared_type
from txlake.protocol.types import DataType, Primitive
from txlake.session.views.view import EntrySource, RowValues, objects_of, utc_time, view

_READ_WRITE, _READ_ONLY = 1, 2
_VARCHAR_LENGTH_MAX = 8000
_NOT_STARTED, _ACTIVE, _ROLLING_BACK = 1, 2, 7


def _locks(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each lock that is granted or requested, in the order of arrival."""
    for entry in entries.locks():
        is_database = entry.resource.type is ResourceType.DATABASE
        # A deadlock victim counts as waiting until its session gets the error.
        status = LockStatus.WAIT if entry.status is LockStatus.VICTIM else entry.status
        yield {
            "resource_type": entry.resource.type.value,
            "resource_subtype": entry.resource.subtype,
            "resource_database_id": entry.resource.database,
            "resource_description": entry.resource.description,
            "resource_associated_entity_id": 0 if is_database else entry.resource.entity,
            "resource_lock_partition": 0,
            "request_mode": entry.mode.value,
            "request_type": "LOCK",
            "request_status": status.value,
            "request_session_id": entry.session_id,
            "request_owner_type": "SESSION" if entry.transaction_id is None else "TRANSACTION",
            "request_owner_id": entry.transaction_number,
            "blocking_session_id": entry.blocking_session_id,
        }


def _active_transactions(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each open transaction, of autocommit statements too."""
    for entry in entries.transactions():
        yield {
            "transaction_id": entry.number,
            "name": entry.name,
            "transaction_begin_time": utc_time(entry.begin_ms),
            "transaction_type": _READ_ONLY if entry.read_only else _READ_WRITE,
            "transaction_state": _state(entry),
        }


def _state(entry: TransactionEntry) -> int:
    """Return SQL Server's code: 7 if ended by another session, 1 before its first read, else 2."""
    if entry.state != "active":
        return _ROLLING_BACK
    return _NOT_STARTED if entry.sequence is None else _ACTIVE


def _object(entry: TableEntry | ViewEntry) -> dict[str, object]:
    """Return the columns of sys.objects for a table or view."""
    kind = ("U", "USER_TABLE") if isinstance(entry, TableEntry) else ("V", "VIEW")
    return {
        "name": entry.name,
        "object_id": entry.number,
        "schema_id": entry.database_number,
        "parent_object_id": 0,
        "type": kind[0],
        "type_desc": kind[1],
        "create_date": utc_time(entry.created_ms),
        "modify_date": utc_time(entry.modified_ms),
        "is_ms_shipped": False,
        "is_published": False,
        "is_schema_published": False,
    }


def _objects(entries: EntrySource) -> Iterator[RowValues]:
    return (_object(entry) for entry in objects_of(entries))


def _views(entries: EntrySource) -> Iterator[RowValues]:
    return (_object(entry) for entry in entries.views())


def _tables(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table."""
    for entry in entries.tables():
        yield {
            **_object(entry),
            "is_replicated": False,
            "is_tracked_by_cdc": False,
            "is_filetable": False,
            "is_memory_optimized": False,
            "durability": 0,
            "durability_desc": "SCHEMA_AND_DATA",
            "temporal_type": 0,
            "temporal_type_desc": "NON_TEMPORAL_TABLE",
            "is_external": not entry.managed,
            "is_node": False,
            "is_edge": False,
        }


def _schemas(entries: EntrySource) -> Iterator[RowValues]:
    return ({"name": entry.name, "schema_id": entry.number} for entry in entries.databases())


@dataclass(frozen=True, slots=True)
class _SqlType:
    """A type of SQL Server: its id in sys.types, length in bytes, precision and scale in digits."""

    id: int
    length: int
    precision: int = 0
    scale: int = 0


_MAX = -1
_TYPES = {
    "long": _SqlType(127, 8, 19),
    "integer": _SqlType(56, 4, 10),
    "short": _SqlType(52, 2, 5),
    "byte": _SqlType(52, 2, 5),
    "boolean": _SqlType(104, 1, 1),
    "double": _SqlType(62, 8, 53),
    "float": _SqlType(59, 4, 24),
    "date": _SqlType(40, 3, 10),
    "timestamp": _SqlType(42, 8, 26, 6),
    "timestamp_ntz": _SqlType(42, 8, 26, 6),
    "string": _SqlType(167, _MAX),
    "binary": _SqlType(165, _MAX),
}
_DECIMAL_BYTES = ((9, 5), (19, 9), (28, 13), (38, 17))
_SIZED = re.compile(r"(?:var)?char\((\d+)\)")
_IDENTITY = "delta.identity.start"


def _sql_type(kind: DataType) -> _SqlType | None:
    """Return SQL Server's type for a type; None if there is none."""
    if not isinstance(kind, Primitive):
        return None
    if kind.decimal is not None:
        precision, scale = kind.decimal
        length = next(size for digits, size in _DECIMAL_BYTES if precision <= digits)
        return _SqlType(106, length, precision, scale)
    sized = _SIZED.fullmatch(kind.name)
    if sized is not None:
        length = int(sized[1])
        return _SqlType(167, length if length <= _VARCHAR_LENGTH_MAX else _MAX)
    return _TYPES.get("string" if kind.is_string else kind.name)


def _columns(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each column of each table, whose log is read; none for views."""
    for table in entries.tables():
        layout = entries.layout(table)
        for position, item in enumerate(layout.schema if layout else (), 1):
            sql_type = _sql_type(declared_type(item))
            kind: RowValues = {}
            if sql_type is not None:
                kind = {
                    "system_type_id": sql_type.id,
                    "user_type_id": sql_type.id,
                    "max_length": sql_type.length,
                    "precision": sql_type.precision,
                    "scale": sql_type.scale,
                }
            yield {
                "object_id": table.number,
                "name": item.name,
                "column_id": position,
                **kind,
                "is_nullable": item.nullable,
                "is_rowguidcol": False,
                "is_identity": _IDENTITY in item.metadata,
                "is_computed": GENERATION in item.metadata,
                "is_filestream": False,
                "is_replicated": False,
                "is_non_sql_subscribed": False,
                "is_merge_published": False,
                "is_dts_replicated": False,
                "is_xml_document": False,
                "xml_collection_id": 0,
                "default_object_id": None if CURRENT_DEFAULT in item.metadata else 0,
                "rule_object_id": 0,
                "is_sparse": False,
                "is_column_set": False,
                "generated_always_type": 0,
                "generated_always_type_desc": "NOT_APPLICABLE",
                "is_hidden": False,
                "is_masked": False,
            }


def _databases(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each database, all online and with snapshot isolation."""
    for entry in entries.databases():
        yield {
            "name": entry.name,
            "database_id": entry.number,
            "create_date": utc_time(entry.created_ms),
            "user_access": 0,
            "user_access_desc": "MULTI_USER",
            "is_read_only": False,
            "state": 0,
            "state_desc": "ONLINE",
            # Every read is of a snapshot, and any transaction can have the level SNAPSHOT.
            "snapshot_isolation_state": 1,
            "snapshot_isolation_state_desc": "ON",
            "is_read_committed_snapshot_on": True,
        }


DM_TRAN_LOCKS = view(
    "sys.dm_tran_locks (Transact-SQL)",
    """
    resource_type STRING, resource_subtype STRING, resource_database_id INT,
    resource_description STRING, resource_associated_entity_id BIGINT,
    resource_lock_partition INT, request_mode STRING, request_type STRING, request_status STRING,
    request_reference_count SMALLINT, request_lifetime INT, request_session_id INT,
    request_exec_context_id INT, request_request_id INT, request_owner_type STRING,
    request_owner_id BIGINT, request_owner_guid STRING, request_owner_lockspace_id STRING,
    lock_owner_address BINARY, blocking_session_id INT
    """,
    _locks,
)
"""With the additional column `blocking_session_id`, as in SQL Server's sys.dm_exec_requests."""

DM_TRAN_ACTIVE_TRANSACTIONS = view(
    "sys.dm_tran_active_transactions (Transact-SQL)",
    """
    transaction_id BIGINT, name STRING, transaction_begin_time TIMESTAMP, transaction_type INT,
    transaction_uow STRING, transaction_state INT, transaction_status INT,
    transaction_status2 INT, dtc_state INT, dtc_status INT, dtc_isolation_level INT,
    filestream_transaction_id BINARY
    """,
    _active_transactions,
)

_OBJECT_COLUMNS = """
    name STRING, object_id INT, principal_id INT, schema_id INT, parent_object_id INT,
    type STRING, type_desc STRING, create_date TIMESTAMP, modify_date TIMESTAMP,
    is_ms_shipped BOOLEAN, is_published BOOLEAN, is_schema_published BOOLEAN
"""
OBJECTS = view("sys.objects (Transact-SQL)", _OBJECT_COLUMNS, _objects)

TABLES = view(
    "sys.tables (Transact-SQL)",
    f"""
    {_OBJECT_COLUMNS},
    lob_data_space_id INT, filestream_data_space_id INT, max_column_id_used INT,
    lock_on_bulk_load BOOLEAN, uses_ansi_nulls BOOLEAN, is_replicated BOOLEAN,
    has_replication_filter BOOLEAN, is_merge_published BOOLEAN, is_sync_tran_subscribed BOOLEAN,
    has_unchecked_assembly_data BOOLEAN, text_in_row_limit INT,
    large_value_types_out_of_row BOOLEAN, is_tracked_by_cdc BOOLEAN, lock_escalation TINYINT,
    lock_escalation_desc STRING, is_filetable BOOLEAN, is_memory_optimized BOOLEAN,
    durability TINYINT, durability_desc STRING, temporal_type TINYINT, temporal_type_desc STRING,
    history_table_id INT, is_remote_data_archive_enabled BOOLEAN, is_external BOOLEAN,
    history_retention_period INT, history_retention_period_unit INT,
    history_retention_period_unit_desc STRING, is_node BOOLEAN, is_edge BOOLEAN
    """,
    _tables,
)

VIEWS = view("sys.views (Transact-SQL)", _OBJECT_COLUMNS, _views)

SCHEMAS = view(
    "sys.schemas (Transact-SQL)", "name STRING, schema_id INT, principal_id INT", _schemas
)

COLUMNS = view(
    "sys.columns (Transact-SQL)",
    """
    object_id INT, name STRING, column_id INT, system_type_id SMALLINT, user_type_id INT,
    max_length SMALLINT, precision SMALLINT, scale SMALLINT, collation_name STRING,
    is_nullable BOOLEAN, is_ansi_padded BOOLEAN, is_rowguidcol BOOLEAN, is_identity BOOLEAN,
    is_computed BOOLEAN, is_filestream BOOLEAN, is_replicated BOOLEAN,
    is_non_sql_subscribed BOOLEAN, is_merge_published BOOLEAN, is_dts_replicated BOOLEAN,
    is_xml_document BOOLEAN, xml_collection_id INT, default_object_id INT, rule_object_id INT,
    is_sparse BOOLEAN, is_column_set BOOLEAN, generated_always_type TINYINT,
    generated_always_type_desc STRING, encryption_type INT, encryption_type_desc STRING,
    encryption_algorithm_name STRING, column_encryption_key_id INT,
    column_encryption_key_database_name STRING, is_hidden BOOLEAN, is_masked BOOLEAN
    """,
    _columns,
)
"""`user_type_id` is that of the system type; a type that SQL Server lacks is NULL."""

DATABASES = view(
    "sys.databases (Transact-SQL)",
    """
    name STRING, database_id INT, source_database_id INT, owner_sid BINARY,
    create_date TIMESTAMP, compatibility_level TINYINT, collation_name STRING,
    user_access TINYINT, user_access_desc STRING, is_read_only BOOLEAN, is_auto_close_on BOOLEAN,
    is_auto_shrink_on BOOLEAN, state TINYINT, state_desc STRING, is_in_standby BOOLEAN,
    is_cleanly_shutdown BOOLEAN, is_supplemental_logging_enabled BOOLEAN,
    snapshot_isolation_state TINYINT, snapshot_isolation_state_desc STRING,
    is_read_committed_snapshot_on BOOLEAN, recovery_model TINYINT, recovery_model_desc STRING,
    page_verify_option TINYINT, page_verify_option_desc STRING, is_auto_create_stats_on BOOLEAN,
    is_auto_update_stats_on BOOLEAN, is_auto_update_stats_async_on BOOLEAN,
    is_ansi_null_default_on BOOLEAN, is_ansi_nulls_on BOOLEAN, is_ansi_padding_on BOOLEAN,
    is_ansi_warnings_on BOOLEAN, is_arithabort_on BOOLEAN, is_concat_null_yields_null_on BOOLEAN,
    is_numeric_roundabort_on BOOLEAN, is_quoted_identifier_on BOOLEAN,
    is_recursive_triggers_on BOOLEAN, is_cursor_close_on_commit_on BOOLEAN,
    is_local_cursor_default BOOLEAN, is_fulltext_enabled BOOLEAN, is_trustworthy_on BOOLEAN,
    is_db_chaining_on BOOLEAN, is_parameterization_forced BOOLEAN,
    is_master_key_encrypted_by_server BOOLEAN, is_published BOOLEAN, is_subscribed BOOLEAN,
    is_merge_published BOOLEAN, is_distributor BOOLEAN, is_sync_with_backup BOOLEAN,
    service_broker_guid STRING, is_broker_enabled BOOLEAN, log_reuse_wait TINYINT,
    log_reuse_wait_desc STRING, is_date_correlation_on BOOLEAN, is_cdc_enabled BOOLEAN,
    is_encrypted BOOLEAN
    """,
    _databases,
)
