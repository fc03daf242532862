"""Flight SQL by a client that others wrote, ADBC's driver; no Spark is started."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import txlake
from tests.server.flight.serving import (
    AGENT,
    CALL_HEADER,
    COOKIES,
    READER,
    WRITER,
    ServedFlight,
    changed,
    rows,
    until,
)
from txlake.errors import InvalidRequest
from txlake.server.calls import Limits
from txlake.server.flight.serving import FlightServer
from txlake.server.tokens import Tokens

OPTION = "adbc.flight.sql.session.option."


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFlight]:
    """A served lake with a table of two rows."""
    limits = Limits(sql_rows_max=3, sql_lock_ms=60_000)
    with txlake.connect(str(tmp_path / "lake")) as lake, ServedFlight(lake, limits) as made:
        with made.connect() as con:
            assert changed(con, "CREATE TABLE t (id INT, name STRING, price DECIMAL(8,2))") == 0
            assert changed(con, "INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', NULL)") == 2
        yield made
        assert not made.served.engine.plane.is_started


@pytest.fixture
def con(served: ServedFlight) -> Iterator[Any]:
    """A connection with autocommit."""
    with served.connect() as made:
        yield made


def test_rows_parameters_and_counts(con: Any) -> None:
    with con.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        table = cursor.fetch_arrow_table()
        assert table.schema.types == [pa.int32(), pa.string(), pa.decimal128(8, 2)]
        assert table.num_rows == cursor.rowcount == 2
        cursor.execute("SELECT name, price FROM t WHERE id = ? AND name = ?", [1, "a"])
        assert [column[0] for column in cursor.description] == ["name", "price"]
        assert cursor.fetchall() == [("a", Decimal("1.50"))]
        named = pa.record_batch({"name": ["b"], "id": [2]})
        cursor.execute("SELECT name FROM t WHERE id = :id AND name = :name", named)
        assert cursor.fetchall() == [("b",)]
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == [("default", "t", False)]
        cursor.execute("UPDATE t SET name = ? WHERE id = 2", ["x"])
        assert (cursor.rowcount, cursor.fetchall()) == (1, [])
        for wrong in ([1], [1, "a", 2]):
            with pytest.raises(con.ProgrammingError, match="markers"):
                cursor.execute("SELECT name FROM t WHERE id = ? AND name = ?", wrong)
    assert rows(con, "SELECT id, name FROM t") == [(1, "a"), (2, "x")]


@pytest.mark.broad
def test_executemany_is_one_write(con: Any) -> None:
    with con.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO t VALUES (?, ?, ?)", [(n, str(n), None) for n in range(3, 8_003)]
        )
        assert cursor.rowcount == 8_000
        cursor.executemany("UPDATE t SET name = ? WHERE id = ?", [("x", 3), ("y", 4), ("z", 9_999)])
        assert cursor.rowcount == 2
    assert rows(con, "SELECT id, name FROM t WHERE id < 5") == [
        (1, "a"),
        (2, "b"),
        (3, "x"),
        (4, "y"),
    ]
    versions = [row[0] for row in rows(con, "DESCRIBE HISTORY t")]
    assert versions[-1] == 3  # created, inserted, inserted, updated


def test_a_prepared_statement_is_run_again(con: Any) -> None:
    with con.cursor() as cursor:
        for wanted, name in ((1, "a"), (2, "b"), (1, "a")):
            cursor.execute("SELECT name FROM t WHERE id = ?", [wanted])
            assert cursor.fetchall() == [(name,)]
        assert cursor.adbc_prepare("SELECT name FROM t WHERE price > ? AND id = ?").types == [
            pa.decimal128(8, 2),
            pa.int32(),
        ]
        assert cursor.adbc_prepare("INSERT INTO t (name, id) VALUES (?, ?)").types == [
            pa.string(),
            pa.int32(),
        ]


def test_bulk_ingestion(served: ServedFlight, con: Any) -> None:
    some = pa.table({"x": [1, 2, 3], "y": pa.array(["a", "b", None]).dictionary_encode()})
    more = pa.table({"x": [4], "y": ["d"]})
    other = pa.table({"z": [1.5]})
    with con.cursor() as cursor:
        with pytest.raises(con.ProgrammingError, match=r"no table default\.u"):
            cursor.adbc_ingest("u", some, mode="append")
        assert cursor.adbc_ingest("u", some, mode="create") == 3
        with pytest.raises(con.ProgrammingError, match=r"default\.u exists already"):
            cursor.adbc_ingest("u", some, mode="create")
        assert cursor.adbc_ingest("u", more.to_batches()[0], mode="append") == 1
        assert cursor.adbc_ingest("u", more.to_reader(), mode="create_append") == 1
        assert rows(con, "SELECT * FROM u WHERE x > 2") == [(3, None), (4, "d"), (4, "d")]
        assert cursor.adbc_ingest("u", other, mode="replace") == 1
        assert rows(con, "SELECT * FROM u") == [(1.5,)]
        for options, problem in (
            ({"temporary": True}, "no temporary tables"),
            ({"db_schema_name": "nowhere"}, "no database 'nowhere'"),
            ({"catalog_name": "elsewhere"}, "no catalog 'elsewhere'"),
        ):
            with pytest.raises(con.Error, match=problem):
                cursor.adbc_ingest("w", more, mode="create", **options)
        with pytest.raises(con.ProgrammingError, match="name of a table"):
            cursor.adbc_ingest("/tmp/w", more, mode="create")
    versions = [row[0] for row in rows(con, "DESCRIBE HISTORY u")]
    assert versions == [0, 1, 2, 3]
    with (
        served.connect(READER) as reader,
        reader.cursor() as cursor,
        pytest.raises(con.ProgrammingError, match="may only read"),
    ):
        cursor.adbc_ingest("u", other, mode="append")


def test_metadata(served: ServedFlight, con: Any) -> None:
    changed(con, "CREATE DATABASE more")
    changed(con, "CREATE TABLE more.t_x (a ARRAY<INT> NOT NULL, m MAP<STRING, INT>)")
    schema = con.adbc_get_table_schema("t_x", db_schema_filter="more")
    assert schema.names == ["a", "m"]
    assert not schema.field("a").nullable
    assert schema.field("a").metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"ARRAY<INT>"
    with pytest.raises(con.Error):
        con.adbc_get_table_schema("t_x", db_schema_filter="default")
    assert con.adbc_get_table_types() == ["TABLE", "VIEW"]
    info = con.adbc_get_info()
    assert (info["vendor_name"], info["vendor_version"]) == ("txlake", txlake.__version__)
    [catalog] = con.adbc_get_objects(depth="columns").read_all().to_pylist()
    assert catalog["catalog_name"] == "lake"
    names = {
        one["db_schema_name"]: [table["table_name"] for table in one["db_schema_tables"]]
        for one in catalog["catalog_db_schemas"]
    }
    assert names == {"default": ["t"], "more": ["t_x"]}
    found = con.adbc_get_objects(depth="tables", table_name_filter=r"T\_%").read_all().to_pylist()
    assert [one["db_schema_name"] for one in found[0]["catalog_db_schemas"]][-1] == "more"
    tables = [one["db_schema_tables"] for one in found[0]["catalog_db_schemas"]]
    assert [[table["table_name"] for table in some] for some in tables] == [[], ["t_x"]]


def test_a_transaction_is_committed_and_rolled_back(served: ServedFlight, con: Any) -> None:
    with served.connect(auto=False) as one:
        assert changed(one, "UPDATE t SET name = 'mine' WHERE id = 1") == 1
        changed(one, "CREATE TABLE u (x INT)")
        with one.cursor() as cursor:
            cursor.executemany("INSERT INTO u VALUES (?)", [(1,), (2,), (3,)])
        assert rows(one, "SELECT x FROM u") == [(1,), (2,), (3,)]
        assert rows(con, "SELECT name FROM t WHERE id = 1") == [("a",)]
        one.commit()
        assert rows(con, "SELECT x FROM u") == [(1,), (2,), (3,)]
        changed(one, "DELETE FROM u WHERE x > 0")
        one.rollback()
        assert len(rows(one, "SELECT * FROM u")) == 3
        one.commit()


def test_a_conflict_has_a_status_of_its_own_and_its_evidence(
    served: ServedFlight, con: Any
) -> None:
    with served.connect(auto=False) as one:
        changed(one, "UPDATE t SET name = 'mine' WHERE id = 1")
        changed(con, "UPDATE t SET name = 'theirs' WHERE id = 1")
        with pytest.raises(con.OperationalError, match=r"default\.t.*\(Aborted; Commit\)") as lost:
            one.commit()
    [(name, content)] = lost.value.details
    facts = json.loads(content)
    assert name == b"txlake-error-bin"
    assert (facts["class"], facts["retry"]) == ("ConcurrentAppendException", True)
    assert facts["evidence"]["table"] == "default.t"
    assert rows(con, "SELECT name FROM t WHERE id = 1") == [("theirs",)]


def test_a_failed_statement_fails_its_transaction(served: ServedFlight, con: Any) -> None:
    for wrong, args in (("SELEKT 1", ()), ("INSERT INTO t VALUES (?)", ([1],))):
        with served.connect(auto=False) as one:
            changed(one, "DELETE FROM t WHERE id = 1")
            with pytest.raises(con.Error):
                changed(one, wrong, *args)
            with pytest.raises(con.ProgrammingError, match="rolled back because"):
                changed(one, "DELETE FROM t WHERE id = 2")
            with pytest.raises(con.ProgrammingError, match="rolled back because"):
                one.commit()
    assert len(rows(con, "SELECT id FROM t")) == 2


def test_isolation_and_database_by_headers(served: ServedFlight, con: Any) -> None:
    changed(con, "CREATE DATABASE d")
    changed(con, "CREATE TABLE d.u (id INT)")
    headers = {f"{CALL_HEADER}txlake-isolation": "serializable"}
    headers[f"{CALL_HEADER}txlake-database"] = "d"
    for auto in (True, False):
        with served.connect(auto=auto, options=headers) as one:
            assert rows(one, "SHOW TRANSACTION ISOLATION LEVEL") == [("serializable",)]
            assert rows(one, "SELECT * FROM u") == []
    for name, value, problem in (
        ("txlake-isolation", "chaos", "isolation"),
        ("txlake-database", "nowhere", "no database 'nowhere'"),
    ):
        with (
            served.connect(options={f"{CALL_HEADER}{name}": value}) as one,
            pytest.raises(con.ProgrammingError, match=problem),
        ):
            rows(one, "SELECT * FROM t")


def test_a_session_by_cookie_has_options_and_sql_transactions(
    served: ServedFlight, con: Any
) -> None:
    with pytest.raises(con.ProgrammingError, match="leaves its transaction open"):
        changed(con, "BEGIN")
    changed(con, "CREATE DATABASE d")
    with served.connect(options={COOKIES: "true"}) as one:
        handle = one.adbc_connection
        handle.set_options(**{f"{OPTION}schema": "d", f"{OPTION}isolation": "snapshot"})
        found = json.loads(handle.get_option("adbc.flight.sql.session.options"))
        assert found == {"catalog": "lake", "isolation": "snapshot", "schema": "d"}
        for name, value in (("schema", "nowhere"), ("isolation", "chaos"), ("colour", "red")):
            with pytest.raises(con.ProgrammingError, match=name):
                handle.set_options(**{f"{OPTION}{name}": value})
        changed(one, "BEGIN")
        changed(one, "UPDATE default.t SET name = 'mine' WHERE id = 1")
        changed(con, "UPDATE t SET name = 'theirs' WHERE id = 1")
        with pytest.raises(con.OperationalError, match="Aborted"):
            changed(one, "COMMIT")
        changed(one, "ROLLBACK")
        assert rows(one, "SELECT name FROM default.t WHERE id = 1") == [("theirs",)]
        changed(one, "BEGIN")
        changed(one, "DELETE FROM default.t WHERE id = 1")
        served.handles._idle_ms = -1
        served.handles.sweep()
        with pytest.raises(con.ProgrammingError, match="idle"):
            changed(one, "DELETE FROM default.t WHERE id = 2")
        changed(one, "ROLLBACK")
        assert len(rows(one, "SELECT id FROM default.t")) == 2
        handle.set_options(**{f"{OPTION}catalog": "lake"})


def test_who_may_do_what(served: ServedFlight, con: Any) -> None:
    with served.connect("unknown") as one, pytest.raises(con.Error, match="token") as refused:
        rows(one, "SELECT * FROM t")
    assert "Unauthenticated" in str(refused.value)
    with served.connect(READER) as reader:
        assert len(rows(reader, "SELECT * FROM t")) == 2
        with pytest.raises(con.ProgrammingError, match=r"may only read.*PermissionDenied"):
            changed(reader, "DELETE FROM t")
        with reader.cursor() as cursor, pytest.raises(con.ProgrammingError, match="may only"):
            cursor.executemany("INSERT INTO t VALUES (?, ?, ?)", [(3, "c", None)])
    with served.connect(AGENT) as agent:
        with pytest.raises(con.ProgrammingError, match="main"):
            changed(agent, "DELETE FROM t WHERE id = 1")
        with agent.cursor() as cursor, pytest.raises(con.ProgrammingError, match="main"):
            cursor.adbc_ingest("t", pa.table({"id": [3]}), mode="append")
    for attack in (
        "SELECT java_method('java.lang.System', 'exit', 0)",
        "SELECT * FROM text.`/etc/passwd`",
        "COPY INTO t FROM '/etc'",
        "SET spark.sql.ansi.enabled = false",
    ):
        for args in ((), ([1],)):
            text = f"{attack} -- ?" if not args else f"SELECT ?; {attack}"
            with pytest.raises(con.ProgrammingError):
                changed(con, text, *args)


def test_handles_belong_to_their_owner(served: ServedFlight, con: Any) -> None:
    """Another token can't use a transaction, though it knows the handle."""
    with served.connect(auto=False) as one:
        changed(one, "DELETE FROM t WHERE id = 1")
        [handle] = served.handles.transactions._open
        [(owner, _)] = [(one.owner, one) for one in served.handles.transactions._open.values()]
        assert owner.name == "etl"
        with served.connect(READER, options={COOKIES: "true"}) as reader:
            reader.adbc_connection.set_options(
                **{f"{CALL_HEADER}cookie": f"arrow_flight_session_id={handle}"}
            )
            with pytest.raises(con.Error, match="no such session"):
                rows(reader, "SELECT * FROM t")


def test_a_statement_cancelled_while_it_waits_for_a_lock_ends_at_once(
    served: ServedFlight, con: Any
) -> None:
    with served.connect(auto=False) as holder, served.connect(auto=False) as waiter:
        changed(holder, "LOCK TABLE t IN EXCLUSIVE MODE")
        locks = served.served.engine.catalog.of_lake().locks
        held = len(locks.entries())
        with waiter.cursor() as cursor:
            changed(waiter, "CREATE TABLE u (id INT)")
            failures: list[Exception] = []

            def update() -> None:
                """Wait for the holder."""
                try:
                    cursor.execute("UPDATE t SET name = 'x' WHERE id = 1")
                except Exception as error:
                    failures.append(error)

            thread = threading.Thread(target=update)
            thread.start()
            until(lambda: any(one.status.value == "WAIT" for one in locks.entries()))
            cursor.adbc_cancel()
            thread.join(30)
            assert "CANCELLED" in str(failures[0])
            until(lambda: len(locks.entries()) == held)
            with pytest.raises(con.Error, match=r"rolled back|killed"):
                changed(waiter, "DELETE FROM t WHERE id = 1")


def test_a_client_that_vanishes_is_rolled_back(served: ServedFlight, con: Any) -> None:
    with served.connect(auto=False) as gone:
        changed(gone, "LOCK TABLE t IN EXCLUSIVE MODE")
        served.handles.transactions._idle_ms = -1
        served.handles.sweep()
        assert changed(con, "UPDATE t SET name = 'x' WHERE id = 1") == 1
        with pytest.raises(con.Error, match="no such transaction"):
            changed(gone, "DELETE FROM t WHERE id = 1")
        served.handles.transactions._idle_ms = 300_000
        gone.rollback()  # what is rolled back already
        assert changed(gone, "DELETE FROM t WHERE id = 1") == 1
        gone.rollback()


@pytest.mark.broad
def test_rows_beyond_the_limit_of_http_and_a_fetch_that_stops(con: Any) -> None:
    with con.cursor() as cursor:
        cursor.adbc_ingest("many", pa.table({"x": range(60_000)}), mode="create")
        cursor.execute("SELECT x FROM many")
        assert cursor.fetchone() == (0,)
    with con.cursor() as cursor:
        cursor.execute("SELECT x FROM many")
        reader = cursor.fetch_record_batch()
        sizes = [batch.num_rows for batch in reader]
        assert (sum(sizes), max(sizes) < 20_000) == (60_000, True)


@pytest.mark.broad
def test_polars_and_pandas(served: ServedFlight, con: Any) -> None:
    frame = pl.DataFrame({"item": ["nails", "screws"], "pieces": [300, 20]})
    assert frame.write_database("stock", con, engine="adbc", if_table_exists="replace") == 2
    assert frame.write_database("stock", con, engine="adbc", if_table_exists="append") == 2
    found = pl.read_database("SELECT item, pieces FROM stock WHERE pieces > 100", con)
    assert found.rows() == [("nails", 300)] * 2
    more = pd.DataFrame({"item": ["bolts"], "pieces": [7]})
    more.to_sql("stock", con, if_exists="append", index=False)
    assert list(pd.read_sql("SELECT item FROM stock WHERE pieces < 10", con)["item"]) == ["bolts"]
    more.to_sql("stock", con, if_exists="replace", index=False)
    assert len(pd.read_sql("SELECT * FROM stock", con)) == 1
    with pytest.raises(con.Error):
        frame.write_database("stock", con, engine="adbc", if_table_exists="fail")


def test_a_port_that_is_taken_and_a_name_and_password(served: ServedFlight) -> None:
    port = int(served.address.rpartition(":")[2])
    with pytest.raises(InvalidRequest, match="couldn't start"):
        FlightServer(served.served, Tokens(), host="127.0.0.1", port=port)
    for password, is_right in ((WRITER, True), ("wrong", False)):
        options = {"username": "anybody", "password": password}
        if not is_right:
            with pytest.raises(flightsql.Error, match="token"):
                flightsql.connect(served.address, db_kwargs=options)
            continue
        with flightsql.connect(served.address, db_kwargs=options, autocommit=True) as one:
            assert rows(one, "SELECT id FROM t WHERE id = 1") == [(1,)]
