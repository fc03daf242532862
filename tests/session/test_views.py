"""The views over entries: columns as documented, values as documented, names in any case."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.catalog.ledgers import User
from txlake.catalog import Catalog, DatabaseEntry, TableEntry
from txlake.catalog.commits import CommitEntry
from txlake.catalog.journal import ConflictEntry
from txlake.catalog.locks import LockEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.conflict.locking import LockMode, LockRequest, LockStatus, Resource, ResourceType
from txlake.errors import Deadlock, Evidence
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_schema
from txlake.session.views import VIEWS, CatalogEntries, Shape, rows_of, view_named
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
        "begin_sequence": 8, "sequence": 9, "host": "h", "process": 4711, "user_name": "ada",
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

    def shape(self, table: TableEntry) -> Shape | None:
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
    found = VIEWS[name].look(Given())
    assert found.rows
    names = found.schema.names
    assert len({one.lower() for one in names}) == len(names)
    rows = [dict(zip(names, row, strict=True)) for row in found.rows]
    schema = to_arrow_schema(found.schema)
    assert pa.Table.from_pylist(rows, schema=schema).num_rows == len(rows)
    for row in rows:
        for column in schema:
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
    objects, tables = look("sys.objects"), look("sys.tables")
    assert objects[0] == {
        "name": "Orders", "object_id": 11, "schema_id": 1, "parent_object_id": 0, "type": "U",
        "type_desc": "USER_TABLE", "create_date": at(4_000), "modify_date": at(5_000),
        "is_ms_shipped": False, "is_published": False, "is_schema_published": False,
    }  # fmt: skip
    assert [one["is_external"] for one in tables] == [False, True]
    assert [{**one, **two} for one, two in zip(tables, objects, strict=True)] == tables


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
        {"db_id": 1, "db_name": "Sales", "isolation_level": "WriteSerializable"},
        {"db_id": 2, "db_name": "strict", "isolation_level": "Serializable"},
    ]
    found = look("pg_database_info")
    assert [(one["datid"], one["datname"], one.get("datconfig")) for one in found] == [
        (3, "loose", ["concurrency_model=1"]),
        (1, "Sales", None),
        (2, "strict", ["concurrency_model=2"]),
    ]
    assert {one["datconnlimit"] for one in found} == {"-1"}


def test_svv_transactions() -> None:
    found = look("svv_transactions")
    assert found[:2] == [
        {"txn_owner": "ada", "txn_db": "Sales", "xid": 1, "pid": 4711, "txn_start": at(8_000),
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


def test_information_schema() -> None:
    assert look("information_schema.schemata")[1] == {
        "catalog_name": "spark_catalog", "schema_name": "Sales", "comment": "c",
        "created": at(1_000),
    }  # fmt: skip
    tables = look("information_schema.tables")
    assert [(one["table_schema"], one["table_name"], one["table_type"]) for one in tables] == [
        ("Sales", "Orders", "MANAGED"),
        ("strict", "outside", "EXTERNAL"),
    ]
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
    session = user.session
    catalog.transactions.begin("x", session)
    entry = catalog.find("default", "t")
    assert entry is not None
    resource = Resource(
        type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number
    )
    catalog.locks.acquire(session, "x", [LockRequest(resource=resource, mode=LockMode.IX)], 0)
    catalog.journal.met("x", session, Deadlock("victim"))
    entries = CatalogEntries(catalog, lambda table: Given().shape(table))
    filled = {name for name in VIEWS if VIEWS[name].look(entries).rows}
    assert filled == set(VIEWS)
    ((number, mode),) = [
        (row[4], row[6]) for row in VIEWS["sys.dm_tran_locks"].look(entries).rows
    ]  # fmt: skip
    assert (number, mode) == (entry.number, "IX")
    catalog.close()
