"""The views over entries: columns as documented, values as documented, names in any case."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.catalog.ledgers import User
from tests.catalog.view_changes import create_view
from txlake.catalog import Catalog, DatabaseEntry, TableEntry
from txlake.catalog.branch_rows import BranchEntry
from txlake.catalog.branch_usage import BranchUsage
from txlake.catalog.commits import CommitEntry
from txlake.catalog.journal import ConflictEntry
from txlake.catalog.lock_entries import LockEntry
from txlake.catalog.maintenance_book import MaintenanceEntry
from txlake.catalog.sessions import SessionEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.catalog.views import ViewEntry
from txlake.conflict.locking import LockMode, LockRequest, LockStatus, Resource, ResourceType
from txlake.errors import Deadlock, Evidence
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_schema
from txlake.session.views import VIEWS, CatalogEntrySource, TableLayout, rows_of, view_named
from txlake.system import System

SALES = DatabaseEntry(id="d1", number=1, name="Sales", created_ms=1_000, comment="c")
STRICT = DatabaseEntry(
    id="d2", number=2, name="strict", created_ms=2_000, isolation="serializable"
)  # fmt: skip
LOOSE = DatabaseEntry(id="d3", number=3, name="loose", created_ms=3_000, isolation="snapshot")
ORDERS = TableEntry(
    id="t1",
    number=11,
    database="Sales",
    database_number=1,
    name="Orders",
    location="file:///w/orders",
    managed=True,
    created_ms=4_000,
    modified_ms=5_000,
    head=3,
)
OUTSIDE = TableEntry(
    id="t2",
    number=12,
    database="strict",
    database_number=2,
    name="outside",
    location="file:///o",
    managed=False,
    created_ms=6_000,
    modified_ms=6_000,
)
EVIDENCE = Evidence(
    table="sales.orders",
    read_version=3,
    winning_version=4,
    winning_operation="MERGE",
    winning_timestamp_ms=7_000,
    winning_user="ada",
    rule="append",
    predicate="a = 1",
    files=("f",),
    rows=({"a": 1},),
    isolation="serializable",
    advice="again",
)


def transaction(number: int, **more: object) -> TransactionEntry:
    values = {
        "id": f"x{number}", "number": number, "session_id": 5, "name": None, "begin_ms": 8_000,
        "isolation": None, "read_only": False, "explicit": True, "state": "active",
        "begin_sequence": 8, "sequence": 9, "lost_attempts": 2, "host": "h",
        "process": 4711, "user_name": "ada",
        **more,
    }  # fmt: skip
    return TransactionEntry(**values)  # type: ignore[arg-type]


def lock(
    number: int, resource: Resource, mode: str, status: LockStatus, **more: object
) -> LockEntry:
    values = {
        "id": number, "session_id": 5, "transaction_id": "x1", "transaction_number": 1,
        "resource": resource, "mode": LockMode(mode), "status": status, "asked_ms": 0,
        "blocking_session_id": None, **more,
    }  # fmt: skip
    return LockEntry(**values)  # type: ignore[arg-type]


FEW = ViewEntry(
    id="V", number=13, database=SALES.name, database_number=SALES.number, name="Few",
    query="SELECT 1", columns=(), comment="said", created_ms=1_000, modified_ms=2_000,
)  # fmt: skip
TABLE = Resource(type=ResourceType.OBJECT, database=1, entity=11)
TURN = Resource(type=ResourceType.OBJECT, database=1, entity=11, subtype="COMMIT")
KEY = Resource(type=ResourceType.KEY, database=1, entity=1, description="orders")
DATABASE = Resource(type=ResourceType.DATABASE, database=1, entity=1)


@dataclass(frozen=True)
class Given:
    """Entries for the tests."""

    def databases(self) -> Sequence[DatabaseEntry]:
        return [LOOSE, SALES, STRICT]

    def tables(self) -> Sequence[TableEntry]:
        return [ORDERS, OUTSIDE]

    def views(self) -> Sequence[ViewEntry]:
        return [FEW]

    def layout(self, table: TableEntry) -> TableLayout | None:
        if table is OUTSIDE:
            return None
        fields = parse_columns(
            "id BIGINT NOT NULL, Day DATE, amount DECIMAL(10,2), ratio DOUBLE, at TIMESTAMP, "
            "tags ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<a: INT>"
        ).fields
        stored: dict[str, object] = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)", "comment": "said",
                  "CURRENT_DEFAULT": "'n'"}  # fmt: skip
        code = Field("code", Primitive("string"), metadata=stored)
        return SimpleNamespace(schema=Struct((*fields, code)), partition_columns=["day"])

    def own_session(self) -> int | None:
        return 7

    def sessions(self) -> Sequence[SessionEntry]:
        common = {"host": "h", "process": 4711, "begin_ms": 500, "lease_ms": 0, "length_ms": 30}
        return [
            SessionEntry(id=number, user_name=user, warned=False, **common)  # type: ignore[arg-type]
            for number, user in ((5, "ada"), (6, "bob"), (7, None), (8, "eve"))
        ]

    def locks(self) -> Sequence[LockEntry]:
        return [
            lock(1, TABLE, "Sch-S", LockStatus.GRANT),
            lock(2, KEY, "X", LockStatus.GRANT),
            lock(3, DATABASE, "S", LockStatus.GRANT, transaction_id=None, transaction_number=None),
            lock(4, TABLE, "Sch-M", LockStatus.WAIT, transaction_id="x2", transaction_number=2,
                 session_id=6, blocking_session_id=5),
            lock(5, TURN, "X", LockStatus.VICTIM, transaction_id="x2", transaction_number=2),
        ]  # fmt: skip

    def transactions(self) -> Sequence[TransactionEntry]:
        return [
            transaction(1, name="mine"),
            transaction(2, read_only=True, sequence=None),
            transaction(3, state="killed"),
            transaction(4, state="killed"),
        ]

    def conflicts(self) -> Sequence[ConflictEntry]:
        common = {"transaction_number": 7, "begin_ms": 100, "session_id": 5, "process": 4711}
        return [
            ConflictEntry(id=2, time_ms=300, transaction_id="y", error="Deadlock",
                          message="victim", evidence=None, transaction_number=None,
                          begin_ms=None, session_id=None, process=None),
            ConflictEntry(id=1, time_ms=200, transaction_id="x7",
                          error="ConcurrentAppendException", message="rows came",
                          evidence=EVIDENCE, **common),
        ]  # fmt: skip

    def commits(self) -> Sequence[CommitEntry]:
        return [
            CommitEntry(sequence=2, time_ms=20, transaction_id="b", table_id="t9", table=None,
                        version=0, operation="WRITE", is_published=False),
            CommitEntry(sequence=1, time_ms=10, transaction_id="a", table_id="t1",
                        table="Sales.Orders", version=4, operation="MERGE", is_published=True),
        ]  # fmt: skip

    def branches(self) -> Sequence[BranchUsage]:
        x = BranchEntry(id="b1", number=21, name="x", parent=0, fork_sequence=3, created_ms=2_000,
                        user_name="ada", kept_until_ms=3_000)  # fmt: skip
        tag = replace(x, id="b2", number=22, name="y", parent=21, is_tag=True, kept_until_ms=None)
        common = {"age_ms": 4_999, "changed_tables": 2, "versions": 7}
        return [
            BranchUsage(entry=x, parent="main", is_expired=True, is_in_use=True, **common),
            BranchUsage(entry=tag, parent="x", is_expired=False, is_in_use=False, **common),
        ]

    def maintenance(self) -> Sequence[MaintenanceEntry]:
        work = MaintenanceEntry(
            id="1", time_ms=1_000, table_name="sales.orders", need="optimize", state="done",
            action="OPTIMIZE sales.orders", reason="60 small files", files=59, size_bytes=10,
            row_count=2, duration_ms=12, session_id=5,
        )  # fmt: skip
        due = replace(work, state="due", duration_ms=None, session_id=None, error="later")
        running = replace(work, state="running", duration_ms=None)
        return [
            due, work, running, replace(running, session_id=99),
            replace(work, table_name=None, need="branches"),
        ]  # fmt: skip

    def kept_alone(self) -> Mapping[int, int | None]:
        return {21: None}


def at(milliseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        milliseconds=milliseconds
    )


def look(name: str) -> list[dict[str, object]]:
    """The rows, without the columns that are NULL."""
    found = rows_of(tuple(name.split(".")), Given())
    assert found is not None
    rows = [dict(zip(found.schema.names, row, strict=True)) for row in found.rows]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("name", VIEWS)
def test_rows_are_of_the_columns_types(name: str) -> None:
    found = VIEWS[name].read(Given())
    assert found.rows
    names = found.schema.names
    assert len({one.lower() for one in names}) == len(names)
    rows = [dict(zip(names, row, strict=True)) for row in found.rows]
    shown = found.table()
    assert shown.schema == to_arrow_schema(found.schema)
    assert shown.to_pylist() == rows
    for row in rows:
        for column in shown.schema:
            if pa.types.is_string(column.type) and row[column.name] is not None:
                assert isinstance(row[column.name], str)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("SYS.Dm_Tran_Locks", "sys.dm_tran_locks"),
        ("STV_DB_ISOLATION_LEVEL", "stv_db_isolation_level"),
        ("PG_Catalog.SVV_Transactions", "svv_transactions"),
        ("INFORMATION_SCHEMA.Tables", "information_schema.tables"),
        ("pg_catalog.sys.tables", None),
        ("pg_catalog.tables", None),
        ("dm_tran_locks", None),
        ("db.stl_tr_conflict", None),
        ("sys.nothing", None),
    ],
)
def test_names(name: str, view: str | None) -> None:
    assert view_named(tuple(name.split("."))) is (None if view is None else VIEWS[view])


def test_dm_tran_locks() -> None:
    common = {
        "resource_database_id": 1, "resource_lock_partition": 0, "request_type": "LOCK",
        "resource_subtype": "", "resource_description": "", "request_session_id": 5,
        "request_owner_type": "TRANSACTION", "request_owner_id": 1,
    }  # fmt: skip
    assert look("sys.dm_tran_locks") == [
        common
        | {"resource_type": "OBJECT", "resource_associated_entity_id": 11}
        | {"request_mode": "Sch-S", "request_status": "GRANT"},
        common
        | {"resource_type": "KEY", "resource_associated_entity_id": 1}
        | {"resource_description": "orders", "request_mode": "X", "request_status": "GRANT"},
        {name: value for name, value in common.items() if name != "request_owner_id"}
        | {"resource_type": "DATABASE", "resource_associated_entity_id": 0}
        | {"request_owner_type": "SESSION", "request_mode": "S", "request_status": "GRANT"},
        common
        | {"resource_type": "OBJECT", "resource_associated_entity_id": 11}
        | {"request_mode": "Sch-M", "request_status": "WAIT", "request_session_id": 6}
        | {"request_owner_id": 2, "blocking_session_id": 5},
        common
        | {"resource_type": "OBJECT", "resource_associated_entity_id": 11}
        | {"resource_subtype": "COMMIT", "request_mode": "X", "request_status": "WAIT"}
        | {"request_owner_id": 2},
    ]


def test_dm_tran_active_transactions() -> None:
    common = {"transaction_begin_time": at(8_000), "transaction_type": 1, "transaction_state": 2}
    assert look("sys.dm_tran_active_transactions") == [
        common | {"transaction_id": 1, "name": "mine"},
        common | {"transaction_id": 2, "transaction_type": 2, "transaction_state": 1},
        common | {"transaction_id": 3, "transaction_state": 7},
        common | {"transaction_id": 4, "transaction_state": 7},
    ]


def test_sys_objects_and_tables() -> None:
    *objects, few = look("sys.objects")
    tables = look("sys.tables")
    assert look("sys.views") == [few]
    assert (few["name"], few["object_id"], few["type"]) == ("Few", 13, "V")
    assert few["modify_date"] == at(2_000)
    assert objects[0] == {
        "name": "Orders", "object_id": 11, "schema_id": 1, "parent_object_id": 0, "type": "U",
        "type_desc": "USER_TABLE", "create_date": at(4_000), "modify_date": at(5_000),
        "is_ms_shipped": False, "is_published": False, "is_schema_published": False,
    }  # fmt: skip
    assert [one["is_external"] for one in tables] == [False, True]
    assert [{**one, **two} for one, two in zip(tables, objects, strict=True)] == tables


def test_sys_schemas_and_columns() -> None:
    assert look("sys.schemas") == [
        {"name": "loose", "schema_id": 3},
        {"name": "Sales", "schema_id": 1},
        {"name": "strict", "schema_id": 2},
    ]
    found = look("sys.columns")
    assert {one["object_id"] for one in found} == {11}  # the other one is gone
    shown = [
        (one["column_id"], one["name"], one.get("system_type_id"), one.get("max_length"),
         one.get("precision"), one.get("scale"))
        for one in found
    ]  # fmt: skip
    assert shown == [
        (1, "id", 127, 8, 19, 0),
        (2, "Day", 40, 3, 10, 0),
        (3, "amount", 106, 9, 10, 2),
        (4, "ratio", 62, 8, 53, 0),
        (5, "at", 42, 8, 26, 6),
        (6, "tags", None, None, None, None),
        (7, "m", None, None, None, None),
        (8, "s", None, None, None, None),
        (9, "code", 167, 5, 0, 0),
    ]
    assert [one["is_nullable"] for one in found] == [False] + [True] * 8
    assert [one.get("default_object_id") for one in found] == [0] * 8 + [None]
    assert {one["is_computed"] for one in found} == {False}


def test_dm_exec_sessions() -> None:
    found = look("sys.dm_exec_sessions")
    assert found[0] == {
        "session_id": 5, "login_time": at(500), "host_name": "h", "host_process_id": 4711,
        "login_name": "ada", "original_login_name": "ada", "status": "running",
        "is_user_process": True, "database_id": 1, "open_transaction_count": 4,
    }  # fmt: skip
    assert [(one["session_id"], one.get("status"), one.get("database_id")) for one in found] == [
        (5, "running", 1),  # waits as a victim
        (6, "running", None),  # waits
        (7, "running", None),  # looks
        (8, None, None),
    ]


@dataclass(frozen=True)
class Busy(Given):
    """One session waits in a transaction, another runs a statement, a third waits to USE."""

    def locks(self) -> Sequence[LockEntry]:
        return [
            lock(1, KEY, "X", LockStatus.WAIT, session_id=6, transaction_id="x2",
                 blocking_session_id=5),
            lock(2, TABLE, "Sch-M", LockStatus.WAIT, session_id=5, transaction_id="x3",
                 blocking_session_id=6),
            lock(3, DATABASE, "S", LockStatus.WAIT, session_id=9, transaction_id=None),
        ]  # fmt: skip

    def transactions(self) -> Sequence[TransactionEntry]:
        return [
            transaction(1, session_id=4),
            transaction(2, session_id=6, isolation="serializable"),
            transaction(3, explicit=False, isolation="snapshot"),
            transaction(4, explicit=False, session_id=8, isolation="write_serializable"),
        ]


def test_txlake_maintenance() -> None:
    rows = look("txlake.maintenance")
    assert [row["state"] for row in rows] == ["done", "running", "interrupted", "done", "due"]
    done, running, interrupted, of_lake, due = rows
    assert done == {
        "time": at(1_000),
        "table": "sales.orders",
        "need": "optimize",
        "state": "done",
        "action": "OPTIMIZE sales.orders",
        "reason": "60 small files",
        "files": 59,
        "size_in_bytes": 10,
        "rows": 2,
        "duration_ms": 12,
    }
    assert (running["host"], running["process"]) == ("h", 4711)
    assert interrupted.keys().isdisjoint({"host", "process"})
    assert "table" not in of_lake
    assert due["error"] == "later"


def test_dm_exec_requests() -> None:
    found = VIEWS["sys.dm_exec_requests"].read(Busy())
    rows = [dict(zip(found.schema.names, row, strict=True)) for row in found.rows]
    shown = [
        {name: value for name, value in row.items() if value is not None and name != "request_id"}
        for row in rows
    ]
    assert {one["request_id"] for one in rows} == {0}
    assert shown == [
        {"session_id": 6, "status": "suspended", "open_transaction_count": 1, "transaction_id": 2,
         "blocking_session_id": 5, "wait_type": "LCK_M_X", "wait_resource": "KEY: 1:1 (orders)",
         "database_id": 1, "transaction_isolation_level": 4},
        {"session_id": 5, "status": "suspended", "open_transaction_count": 0, "transaction_id": 3,
         "blocking_session_id": 6, "wait_type": "LCK_M_SCH_M", "wait_resource": "OBJECT: 1:11:0",
         "database_id": 1, "start_time": at(8_000), "transaction_isolation_level": 5},
        {"session_id": 8, "status": "running", "open_transaction_count": 0, "transaction_id": 4,
         "start_time": at(8_000)},
        {"session_id": 9, "status": "suspended", "open_transaction_count": 0,
         "wait_type": "LCK_M_S", "wait_resource": "DATABASE: 1", "database_id": 1},
        {"session_id": 7, "status": "running", "open_transaction_count": 0},
    ]  # fmt: skip


def test_dm_tran_session_transactions() -> None:
    found = VIEWS["sys.dm_tran_session_transactions"].read(Busy())
    names = found.schema.names
    assert [row[:2] for row in found.rows] == [(4, 1), (6, 2), (5, 3), (8, 4)]
    assert [row[names.index("enlist_count")] for row in found.rows] == [None, 1, 1, 1]
    explicit = [row[names.index("is_user_transaction")] for row in found.rows]
    assert explicit == [True, True, False, False]
    assert [row[names.index("open_transaction_count")] for row in found.rows] == [1, 1, 0, 0]


def test_the_catalogs_of_postgresql_fold_names() -> None:
    assert look("PG_TABLES") == [
        {"schemaname": schema, "tablename": table, "hasindexes": False, "hasrules": False,
         "hastriggers": False}
        for schema, table in (("sales", "orders"), ("strict", "outside"))
    ]  # fmt: skip
    classes = look("pg_catalog.pg_class")
    assert [
        (one["oid"], one["relname"], one["relnamespace"], one["relkind"]) for one in classes
    ] == [
        (11, "orders", 1, "r"),
        (12, "outside", 2, "r"),
        (13, "few", 1, "v"),
    ]
    assert look("pg_views") == [
        {"schemaname": "sales", "viewname": "few", "definition": "SELECT 1"}
    ]
    spaces = [{"oid": 3, "nspname": "loose"}, {"oid": 1, "nspname": "sales"}]
    assert look("pg_namespace") == [*spaces, {"oid": 2, "nspname": "strict"}]
    assert [(one["oid"], one["datname"]) for one in look("pg_database")] == [
        (3, "loose"),
        (1, "sales"),
        (2, "strict"),
    ]


def test_svv_tables() -> None:
    assert look("svv_tables") == [
        {"table_catalog": "spark_catalog", "table_schema": "sales", "table_name": "orders",
         "table_type": "BASE TABLE"},
        {"table_catalog": "spark_catalog", "table_schema": "strict", "table_name": "outside",
         "table_type": "EXTERNAL TABLE"},
        {"table_catalog": "spark_catalog", "table_schema": "sales", "table_name": "few",
         "table_type": "VIEW", "remarks": "said"},
    ]  # fmt: skip


def test_stv_locks() -> None:
    """The writers' alone: not the reader's lock, nor the turn of a commit."""
    assert look("stv_locks") == [
        {"table_id": 11, "last_commit": at(10), "lock_owner": 2, "lock_owner_pid": 4711,
         "lock_owner_start_ts": at(8_000), "lock_status": "Waiting for write lock"},
    ]  # fmt: skip


def test_sys_databases() -> None:
    found = look("sys.databases")
    assert [(one["name"], one["database_id"], one["create_date"]) for one in found] == [
        ("loose", 3, at(3_000)),
        ("Sales", 1, at(1_000)),
        ("strict", 2, at(2_000)),
    ]
    assert {one["state_desc"] for one in found} == {"ONLINE"}
    assert {one["snapshot_isolation_state_desc"] for one in found} == {"ON"}


def test_isolation_levels() -> None:
    assert look("stv_db_isolation_level") == [
        {"db_id": 3, "db_name": "loose", "isolation_level": "Snapshot Isolation"},
        {"db_id": 1, "db_name": "sales", "isolation_level": "WriteSerializable"},
        {"db_id": 2, "db_name": "strict", "isolation_level": "Serializable"},
    ]
    found = look("pg_database_info")
    assert [(one["datid"], one["datname"], one.get("datconfig")) for one in found] == [
        (3, "loose", ["concurrency_model=1"]),
        (1, "sales", None),
        (2, "strict", ["concurrency_model=2"]),
    ]
    assert {one["datconnlimit"] for one in found} == {"-1"}


def test_svv_transactions() -> None:
    found = look("svv_transactions")
    assert found[:2] == [
        {"txn_owner": "ada", "txn_db": "sales", "xid": 1, "pid": 4711, "txn_start": at(8_000),
         "lock_mode": "AccessShareLock", "lockable_object_type": "relation", "relation": 11,
         "granted": True},
        {"txn_owner": "ada", "xid": 1, "pid": 4711, "txn_start": at(8_000),
         "lock_mode": "ExclusiveLock", "lockable_object_type": "transactionid", "granted": True},
    ]  # fmt: skip
    waiting = [(one["lock_mode"], one["xid"]) for one in found if not one["granted"]]
    assert waiting == [("AccessExclusiveLock", 2), ("ExclusiveLock", 2)]


def test_conflicts() -> None:
    assert look("stl_tr_conflict") == [
        {"xact_id": 7, "process_id": 4711, "xact_start_ts": at(100), "abort_time": at(200),
         "table_id": 11},
        {"abort_time": at(300)},
    ]  # fmt: skip
    first, second = look("txlake.conflicts")
    assert first == {
        "time": at(200), "transaction_id": "x7", "error": "ConcurrentAppendException",
        "table": "sales.orders", "read_version": 3, "winning_version": 4,
        "winning_operation": "MERGE", "winning_time": at(7_000), "winning_user": "ada",
        "rule": "append", "predicate": "a = 1", "files": ["f"], "rows": ['{"a": 1}'],
        "isolation": "serializable", "retry": True, "advice": "again", "message": "rows came",
    }  # fmt: skip
    assert second == {
        "time": at(300), "transaction_id": "y", "error": "Deadlock", "message": "victim",
    }  # fmt: skip


def test_commits() -> None:
    assert look("txlake.commits") == [
        {"sequence": 1, "time": at(10), "transaction_id": "a", "table": "Sales.Orders",
         "version": 4, "operation": "MERGE", "is_published": True},
        {"sequence": 2, "time": at(20), "transaction_id": "b", "version": 0,
         "operation": "WRITE", "is_published": False},
    ]  # fmt: skip


def test_branches() -> None:
    common = {
        "created_time": at(2_000), "owner": "ada", "age_seconds": 4, "sequence": 3,
        "changed_tables": 2, "versions": 7,
    }  # fmt: skip
    assert look("txlake.branches") == [
        common
        | {"name": "x", "kind": "branch", "parent": "main", "kept_until": at(3_000)}
        | {"is_expired": True, "is_in_use": True},
        common
        | {"name": "y", "kind": "tag", "parent": "x", "is_expired": False}
        | {"size_in_bytes": 0, "is_in_use": False},
    ]


def test_information_schema() -> None:
    assert look("information_schema.schemata")[1] == {
        "catalog_name": "spark_catalog", "schema_name": "Sales", "comment": "c",
        "created": at(1_000),
    }  # fmt: skip
    tables = look("information_schema.tables")
    assert [(one["table_schema"], one["table_name"], one["table_type"]) for one in tables] == [
        ("Sales", "Orders", "MANAGED"),
        ("strict", "outside", "EXTERNAL"),
        ("Sales", "Few", "VIEW"),
    ]
    assert look("information_schema.views") == [
        {"table_catalog": "spark_catalog", "table_schema": "Sales", "table_name": "Few",
         "view_definition": "SELECT 1", "check_option": "NONE", "is_updatable": "NO",
         "is_insertable_into": "NO", "is_materialized": False},
    ]  # fmt: skip
    columns = look("information_schema.columns")
    assert {one["table_name"] for one in columns} == {"Orders"}  # the other one is gone
    shown = [
        (one["ordinal_position"], one["column_name"], one["full_data_type"], one["data_type"],
         one.get("numeric_precision"), one.get("numeric_precision_radix"),
         one.get("numeric_scale"), one.get("datetime_precision"))
        for one in columns
    ]  # fmt: skip
    assert shown == [
        (1, "id", "bigint", "BIGINT", 64, 2, 0, None),
        (2, "Day", "date", "DATE", None, None, None, 0),
        (3, "amount", "decimal(10,2)", "DECIMAL", 10, 10, 2, None),
        (4, "ratio", "double", "DOUBLE", 64, 2, None, None),
        (5, "at", "timestamp", "TIMESTAMP", None, None, None, 3),
        (6, "tags", "array<string>", "ARRAY", None, None, None, None),
        (7, "m", "map<string,int>", "MAP", None, None, None, None),
        (8, "s", "struct<a:int>", "STRUCT", None, None, None, None),
        (9, "code", "varchar(5)", "VARCHAR", None, None, None, None),
    ]
    assert [one["is_nullable"] for one in columns] == ["NO"] + ["YES"] * 8
    assert [one.get("partition_index") for one in columns] == [None, 1] + [None] * 7
    assert (columns[8]["comment"], columns[8]["column_default"]) == ("said", "'n'")


def test_what_a_catalog_has(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}", System())
    user = User(catalog)
    user.create("t")
    create_view(catalog, "default", "v", "SELECT 1", ())
    session = user.session
    catalog.transactions.begin("x", session)
    entry = catalog.find("default", "t")
    assert entry is not None
    resource = Resource(
        type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number
    )
    catalog.locks.acquire(session, "x", [LockRequest(resource=resource, mode=LockMode.IX)], 0)
    catalog.journal.record("x", session, Deadlock("victim"))
    catalog.branches.create("b")
    work = Given().maintenance()[1]
    catalog.maintenance.add(work)
    entries = CatalogEntrySource(catalog, lambda table: Given().layout(table), lambda: session)
    filled = {name for name in VIEWS if VIEWS[name].read(entries).rows}
    assert filled == set(VIEWS)
    ((number, mode),) = [
        (row[4], row[6]) for row in VIEWS["sys.dm_tran_locks"].read(entries).rows
    ]  # fmt: skip
    assert (number, mode) == (entry.number, "IX")
    catalog.close()
