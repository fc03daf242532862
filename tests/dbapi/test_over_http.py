"""Python's database API over `txlake serve`: the same promises, and what a network adds."""

from __future__ import annotations

import datetime
import http.client
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlake
import txlake.dbapi
from tests.dbapi.served import READER, Served
from txlake import errors
from txlake.dbapi import Connection, exceptions, over_http
from txlake.sql.typed_parameters import from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        made = Served(lake)
        with made.client:
            made.start()
            with made.connect() as con:
                con.execute("CREATE TABLE t (id INT, name STRING)")
                con.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
            yield made
            made.stop()


@pytest.fixture
def con(served: Served) -> Iterator[Connection]:
    with closing(served.connect()) as made:
        yield made


def rows(con: Connection, text: str = "SELECT * FROM t", *args: object) -> list[Any]:
    return sorted(con.execute(text, args).fetchall())


def test_rows_counts_and_transactions(served: Served, con: Connection) -> None:
    cursor = con.execute("SELECT id, name FROM t WHERE id = ?", [2])
    assert [column[:2] for column in cursor.description or ()] == [
        ("id", "int"),
        ("name", "string"),
    ]
    assert (cursor.rowcount, cursor.fetchall()) == (1, [(2, "b")])
    assert con.in_transaction
    assert con.execute("UPDATE t SET name = :n WHERE id = 1", {"n": "it's"}).rowcount == 1
    cursor.executemany("INSERT INTO t VALUES (?, ?)", [(3, None), (4, "d")])
    assert (cursor.rowcount, cursor.description) == (2, None)
    with served.connect() as other:
        assert rows(other) == [(1, "a"), (2, "b")]
    con.execute("SAVEPOINT s")
    con.execute("DELETE FROM t WHERE id = 4")
    con.execute("ROLLBACK TO s")
    con.commit()
    assert not con.in_transaction
    assert cursor.execute("SELECT id FROM t WHERE id > 2").fetch_arrow_table().num_rows == 2
    con.execute("DELETE FROM t WHERE id > 0")
    con.rollback()
    con.rollback()
    con.autocommit = True
    con.execute("BEGIN; DELETE FROM t WHERE id = 4")
    assert con.in_transaction
    con.execute("COMMIT")
    assert not con.in_transaction
    con.execute("DELETE FROM t WHERE id = 3")
    assert list(con.execute("SELECT id FROM t").fetch_df()["id"]) in ([1, 2], [2, 1])


def test_levels_and_databases(served: Served, con: Connection) -> None:
    con.autocommit = True
    con.execute("CREATE DATABASE d")
    con.execute("CREATE TABLE d.u (id INT)")
    with served.connect(isolation="snapshot", database="d") as other:
        assert other.isolation_level == "snapshot"
        for level in ("serializable", "write_serializable", "snapshot"):
            other.isolation_level = level
            [shown] = other.execute("SHOW TRANSACTION ISOLATION LEVEL").fetchall()
            assert level.replace("_", "") in str(shown).lower().replace("_", "").replace(" ", "")
        with pytest.raises(exceptions.ProgrammingError, match="open another connection"):
            other.isolation_level = None
        assert rows(other, "SELECT * FROM u") == []
    con.isolation_level = None
    with pytest.raises(exceptions.ProgrammingError, match="no database 'nowhere'"):
        served.connect(database="nowhere")


def test_a_conflict_keeps_its_evidence(served: Served, con: Connection) -> None:
    con.execute("UPDATE t SET name = 'mine' WHERE id = 1")
    with served.connect() as other:
        other.execute("UPDATE t SET name = 'theirs' WHERE id = 1")
    with pytest.raises(con.OperationalError) as caught:
        con.commit()
    assert isinstance(caught.value.__cause__, errors.Conflict)
    assert caught.value.evidence is not None
    assert caught.value.evidence.table == "default.t"
    assert caught.value.retry
    assert not con.in_transaction
    assert rows(con) == [(1, "theirs"), (2, "b")]


def test_errors(served: Served, con: Connection) -> None:
    con.execute("INSERT INTO t VALUES (3, 'c')")
    with pytest.raises(exceptions.NotSupportedError, match="autocommit"):
        con.execute("CREATE BRANCH b")
    with pytest.raises(exceptions.ProgrammingError, match="line 1"):
        con.execute("SELEKT 1")
    with pytest.raises(exceptions.ProgrammingError):
        con.commit()
    assert rows(con) == [(1, "a"), (2, "b")]
    for args in ([], [1, 2], {"x": 1}):
        with pytest.raises(exceptions.ProgrammingError):
            con.execute("SELECT * FROM t WHERE id = ?", args)
        con.rollback()
    with pytest.raises(exceptions.ProgrammingError, match="a parameter is a object"):
        con.execute("SELECT * FROM t WHERE id = ?", [object()])
    con.rollback()
    with closing(served.connect(token=READER)) as reader:
        assert len(rows(reader)) == 2
        with pytest.raises(exceptions.ProgrammingError, match="may only read"):
            reader.execute("DELETE FROM t WHERE id = 1")
    with pytest.raises(exceptions.ProgrammingError):
        served.connect(token="unknown")


def test_more_rows_than_the_server_sends_are_refused(con: Connection) -> None:
    con.cursor().executemany("INSERT INTO t VALUES (?, ?)", [(n, "x") for n in range(3, 110)])
    with pytest.raises(exceptions.ProgrammingError, match="109 rows, and the server sends at most"):
        con.execute("SELECT * FROM t")
    assert len(rows(con, "SELECT * FROM t LIMIT 100")) == 100


def test_a_client_that_vanishes_is_rolled_back(served: Served) -> None:
    gone = served.connect()
    gone.execute("LOCK TABLE t IN EXCLUSIVE MODE")
    gone.execute("DELETE FROM t WHERE id = 1")
    served.end_idle_sessions()
    with served.connect() as con:
        con.execute("SET LOCK_TIMEOUT 0")
        assert con.execute("UPDATE t SET name = 'x' WHERE id > 0").rowcount == 2
    with pytest.raises(exceptions.OperationalError, match="no such session"):
        gone.commit()
    assert not gone.in_transaction
    gone.rollback()
    gone.close()


def test_closing_frees_the_locks(served: Served, con: Connection) -> None:
    other = served.connect()
    other.execute("LOCK TABLE t IN EXCLUSIVE MODE")
    other.close()
    con.execute("SET LOCK_TIMEOUT 0")
    assert con.execute("DELETE FROM t WHERE id = 1").rowcount == 1


def test_lost_answers(served: Served, con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request arrived: a change outside of a transaction and a COMMIT may have happened."""
    con.execute("DELETE FROM t WHERE id = 1")
    with monkeypatch.context() as patched:
        patched.setattr(http.client.HTTPConnection, "getresponse", _lost)
        with pytest.raises(exceptions.OperationalError) as in_transaction:
            con.execute("DELETE FROM t WHERE id = 2")
        with pytest.raises(exceptions.OperationalError) as commit:
            con.commit()
        with pytest.raises(exceptions.OperationalError, match="no answer"):
            served.connect()
    assert isinstance(in_transaction.value.__cause__, errors.Unavailable)
    assert isinstance(commit.value.__cause__, errors.OutcomeUnknown)


def _lost(_: object) -> None:
    raise http.client.RemoteDisconnected("gone")


def test_a_server_that_is_not_there(served: Served, con: Connection) -> None:
    served.stop()
    with pytest.raises(exceptions.OperationalError, match="can't be reached"):
        con.execute("SELECT * FROM t")
    with pytest.raises(exceptions.OperationalError, match="can't be reached"):
        served.connect()


def test_values_of_spark_over_the_wire(spark: SparkSession, served: Served) -> None:
    with closing(served.connect()) as con:
        cursor = con.execute(
            "SELECT INTERVAL '1 02:03:04.5' DAY TO SECOND AS i, map('k', 1.5BD) AS m, "
            "array(named_struct('x', 1)) AS a, TIMESTAMP_NTZ '1969-12-31 23:59:59.5' AS w, "
            "map(2, 'v') AS n, ? AS p",
            [datetime.timedelta(days=-1, seconds=5)],
        )
        delta = datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
        assert cursor.fetchall() == [
            (
                delta,
                {"k": Decimal("1.5")},
                [{"x": 1}],
                datetime.datetime.fromisoformat("1969-12-31T23:59:59.5"),
                {2: "v"},
                datetime.timedelta(days=-1, seconds=5),
            )
        ]
        assert cursor.description is not None
        assert cursor.description[0][1] == txlake.dbapi.DATETIME
        with pytest.raises(exceptions.DataError):
            con.execute("SELECT 1 / id FROM range(0, 2)")


@pytest.mark.parametrize(
    ("dsn", "token", "problem"),
    [
        ("txlake+http://", None, "expected txlake"),
        ("txlake+ftp://host", None, "expected txlake"),
        ("txlake+http://host/path", None, "expected txlake"),
        ("txlake+http://host?x=1", None, "expected txlake"),
        ("txlake+http://host:99999", None, "invalid host or port"),
        ("txlake+http://user:secret@host", None, "give token="),
        ("txlake+http://host", "secret", "use txlake\\+https"),
        ("txlake+https://host", "two words", "one word"),
    ],
)
def test_addresses_that_are_refused(dsn: str, token: str | None, problem: str) -> None:
    with pytest.raises(exceptions.ProgrammingError, match=problem) as caught:
        txlake.dbapi.connect(dsn, token=token)
    assert "secret" not in str(caught.value)


def test_options_of_a_lake_in_this_process_are_refused() -> None:
    with pytest.raises(exceptions.ProgrammingError, match="catalog"):
        txlake.dbapi.connect("txlake+http://localhost", catalog="warehouse")


def test_an_address_that_is_used() -> None:
    found = over_http.address_of("txlake+https://host.example:8443/", "word")
    assert str(found) == "https://host.example:8443"
    assert str(over_http.address_of("txlake+http://[::1]", "word")) == "http://::1"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        -(2**63),
        1.5,
        float("inf"),
        "text",
        Decimal("12345678901234567890.1230"),
        b"\x00\xff",
        datetime.date(1, 2, 3),
        datetime.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
        datetime.datetime(2026, 3, 29, 1, 0, tzinfo=datetime.UTC),
        datetime.timedelta(days=-3, microseconds=7),
        [1, [Decimal("1.0"), None]],
    ],
)
def test_parameters_arrive_as_they_were(value: object) -> None:
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"type": "uuid", "value": "x"},
        {"type": "decimal", "value": 1},
        {"type": "decimal", "value": "x"},
        {"type": "interval", "value": "x"},
        {"type": "date", "value": "2026-02-30"},
        {"type": "binary", "value": "*"},
        {"type": "date", "value": "2026-02-01", "more": 1},
    ],
)
def test_objects_that_are_no_parameters(found: object) -> None:
    with pytest.raises(errors.InvalidRequest, match="a parameter"):
        from_json(found)


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (404, b"{}", errors.Unavailable),
        (409, b"no json", errors.Unavailable),
        (503, b"[]", errors.Unavailable),
        (500, b'{"error": {"message": "x"}}', errors.OutcomeUnknown),
        (400, b'{"error": {"message": "x"}}', errors.InvalidRequest),
        (
            429,
            b'{"error": {"message": "m (error 1222)", "class": "LockTimeout"}}',
            errors.LockTimeout,
        ),
        (409, b'{"error": {"message": "m", "class": "Evidence"}}', errors.Unavailable),
    ],
)
def test_what_a_response_means(status: int, content: bytes, kind: type[Exception]) -> None:
    address = over_http.address_of("txlake+http://localhost", None)
    made = over_http._error_of(address, status, content)
    assert isinstance(made, kind)
    assert str(made).count("error 1222") == (status == 429)


def test_values_over_the_wire(served: Served, con: Connection) -> None:
    zoned = datetime.datetime(2026, 3, 29, 1, 30, 0, 5, datetime.UTC)
    con.execute("CREATE TABLE v (n DECIMAL(20,4), d DATE, z TIMESTAMP, b BINARY, f DOUBLE)")
    values = (Decimal("1234567890123456.7891"), datetime.date(1582, 10, 15), zoned, b"\x00'", 1.5)
    con.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?)", values)
    cursor = con.execute("SELECT * FROM v")
    assert (cursor.description or ())[0][1:6] == ("decimal(20,4)", None, None, 20, 4)
    assert cursor.fetchall() == [values]
