"""Python's database API on a lake in this process: PEP 249, transactions, errors, values."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import txlake
import txlake.dbapi
from txlake import errors
from txlake.dbapi import Connection, exceptions, in_process
from txlake.sql.markers import WallTime
from txlake.sql.typed_parameters import from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A lake with a table of two rows."""
    location = str(tmp_path / "lake")
    with txlake.dbapi.connect(location) as con:
        con.execute("CREATE TABLE t (id INT NOT NULL, name STRING)")
        con.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return location


@pytest.fixture
def con(place: str) -> Iterator[Connection]:
    with closing(txlake.dbapi.connect(place)) as made:
        yield made


def rows(con: Connection, text: str = "SELECT * FROM t", *args: object) -> list[Any]:
    return sorted(con.execute(text, args).fetchall())


def is_spark_started(con: Connection) -> bool:
    backend = con._backend
    assert isinstance(backend, in_process.InProcess)
    return backend._session.engine.plane.is_started


def test_what_the_driver_answers_starts_no_spark(con: Connection) -> None:
    cursor = con.execute("SELECT id, name FROM t WHERE id = ?", [2])
    assert cursor.description == (
        ("id", "int", None, None, None, None, False),
        ("name", "string", None, None, None, None, True),
    )
    assert cursor.description[0][1] == txlake.dbapi.NUMBER
    assert cursor.description[1][1] == txlake.dbapi.STRING != txlake.dbapi.NUMBER
    assert (cursor.rowcount, cursor.lastrowid, cursor.fetchall()) == (1, None, [(2, "b")])
    assert con.execute("SELECT id FROM t WHERE name = :n", {"n": "a"}).fetchone() == (1,)
    for text, count in (
        ("INSERT INTO t VALUES (3, 'c')", 1),
        ("UPDATE t SET name = 'z' WHERE id > 1", 2),
        ("DELETE FROM t WHERE id = 1", 1),
    ):
        done = con.execute(text)
        assert (done.rowcount, done.description) == (count, None)
        with pytest.raises(exceptions.InterfaceError, match="no rows to fetch"):
            done.fetchone()
    assert not is_spark_started(con)


def test_fetching(con: Connection) -> None:
    con.cursor().executemany("INSERT INTO t VALUES (?, ?)", [(n, "x") for n in range(3, 11)])
    cursor = con.execute("SELECT id FROM t")
    assert len(cursor.fetchmany()) == 1
    cursor.arraysize = 3
    assert [len(cursor.fetchmany()), len(cursor.fetchmany(2)), len(list(cursor))] == [3, 2, 4]
    assert (cursor.fetchone(), cursor.fetchmany(), cursor.fetchall()) == (None, [], [])
    cursor.execute("SELECT id, name FROM t WHERE id < 3")
    cursor.fetchone()
    rest = cursor.fetch_arrow_table()
    assert (rest.num_rows, rest.column_names) == (1, ["id", "name"])
    assert list(cursor.execute("SELECT * FROM t WHERE id = 1").fetch_df()["name"]) == ["a"]
    for size in (-1, "2", True):
        with pytest.raises(exceptions.ProgrammingError, match="expected a number of rows"):
            cursor.fetchmany(size)  # type: ignore[arg-type]


def test_a_transaction_begins_with_the_first_statement(place: str, con: Connection) -> None:
    with txlake.dbapi.connect(place) as other:
        assert not con.in_transaction
        con.execute("INSERT INTO t VALUES (3, 'c')")
        assert con.in_transaction
        assert (len(rows(con)), len(rows(other))) == (3, 2)
        con.commit()
        assert len(rows(other)) == 2  # its transaction reads what it began with
        other.rollback()
        assert len(rows(other)) == 3
        con.execute("DELETE FROM t WHERE id = 3")
        con.execute("SAVEPOINT s")
        con.execute("DELETE FROM t WHERE id > 0")
        con.execute("ROLLBACK TO s")
        assert len(rows(con)) == 2
        con.rollback()
        con.rollback()
        con.commit()
        assert len(rows(con)) == 3


def test_autocommit(place: str, con: Connection) -> None:
    con.execute("INSERT INTO t VALUES (3, 'c')")
    with pytest.raises(exceptions.ProgrammingError, match="autocommit: a transaction is open"):
        con.autocommit = True
    with pytest.raises(exceptions.ProgrammingError, match="isolation_level: a transaction is open"):
        con.isolation_level = "snapshot"
    con.rollback()
    con.autocommit = True
    con.execute("INSERT INTO t VALUES (4, 'd')")
    assert not con.in_transaction
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (5, 'e')")
    con.rollback()
    with txlake.dbapi.connect(place, autocommit=True) as other:
        assert [row[0] for row in rows(other)] == [1, 2, 4]
        assert other.autocommit


def test_statements_that_begin_nothing_or_say_begin(con: Connection) -> None:
    for text in ("SHOW TRANSACTION ISOLATION LEVEL", "SHOW BRANCHES", "SET LOCK_TIMEOUT 100"):
        con.execute(text)
        assert not con.in_transaction, text
    con.execute("BEGIN; INSERT INTO t VALUES (3, 'c'); COMMIT")
    assert not con.in_transaction
    con.execute("SET LOCK_TIMEOUT 100; INSERT INTO t VALUES (4, 'd')")
    con.rollback()
    assert [row[0] for row in rows(con)] == [1, 2, 3]


@pytest.mark.parametrize("text", ["VACUUM t", "CREATE BRANCH b", "BEGIN ATOMIC SELECT 1; END"])
def test_what_commits_by_itself_needs_autocommit(con: Connection, text: str) -> None:
    con.execute("INSERT INTO t VALUES (3, 'c')")
    with pytest.raises(exceptions.NotSupportedError, match=r"con\.autocommit = True"):
        con.execute(text)
    assert len(rows(con)) == 3  # nothing ran: the transaction goes on
    con.commit()


def test_definitions_are_part_of_the_transaction(con: Connection) -> None:
    con.execute("CREATE TABLE u (id INT)")
    assert con.execute("INSERT INTO u VALUES (1)").rowcount == 1
    con.execute("DROP TABLE t")
    con.rollback()
    assert len(rows(con)) == 2
    with pytest.raises(exceptions.ProgrammingError, match="u"):
        con.execute("INSERT INTO u VALUES (1)")


def test_executemany_of_an_insert_is_one_write(con: Connection) -> None:
    cursor = con.cursor()
    cursor.executemany("INSERT INTO t (name, id) VALUES (?, ?)", [("it's", 3), (None, 4)])
    assert (cursor.rowcount, cursor.description) == (2, None)
    con.commit()
    con.autocommit = True
    many = [{"i": n, "n": f"row ? {n}"} for n in range(10, 10_020)]
    cursor.executemany("INSERT INTO t VALUES (:i, :n)", many)
    assert cursor.rowcount == 10_010
    versions = con.execute("DESCRIBE HISTORY t").fetchall()
    assert len(versions) == 3  # the fixture's, two rows, all of the others
    assert con.execute("SELECT name FROM t WHERE id = 10000").fetchall() == [("row ? 10000",)]
    assert cursor.executemany("UPDATE t SET name = ? WHERE id = ?", [("p", 1), ("q", 2)]) is cursor
    assert cursor.rowcount == 2
    assert con.execute("SELECT name FROM t WHERE id <= 2").fetchall() == [("p",), ("q",)]
    cursor.executemany("INSERT INTO t VALUES (?, ?)", [])
    assert cursor.rowcount == -1


def test_executemany_is_all_or_nothing(con: Connection) -> None:
    con.autocommit = True
    cursor = con.cursor()
    with pytest.raises(exceptions.ProgrammingError, match="row 1 has 1 values for 2 markers"):
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(3, "c"), (4,)])
    with pytest.raises(exceptions.ProgrammingError, match=r"row 0 has .* :i, :x; .* :i, :n"):
        cursor.executemany("INSERT INTO t VALUES (:i, :n)", [{"i": 1, "x": 2}])
    with pytest.raises(exceptions.ProgrammingError, match="row 1 is a tuple"):
        cursor.executemany("INSERT INTO t VALUES (:i, :n)", [{"i": 1, "n": "a"}, (1, "a")])
    with pytest.raises(exceptions.IntegrityError, match="NOT NULL"):
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(3, "c"), (None, "d")])
    with pytest.raises(exceptions.ProgrammingError):
        cursor.executemany("UPDATE t SET name = ? WHERE id = ?", [("x", 1), ("y",)])
    with pytest.raises(exceptions.ProgrammingError, match="return no rows"):
        cursor.executemany("SELECT * FROM t WHERE id = ?", [(1,)])
    assert rows(con) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("args", [[], [1, 2], {"x": 1}])
def test_wrong_counts_of_parameters(con: Connection, args: Any) -> None:
    with pytest.raises(exceptions.ProgrammingError, match=r"marker|parameter|values") as caught:
        con.execute("SELECT * FROM t WHERE id = ?", args)
    if args:
        assert isinstance(caught.value.__cause__, errors.InvalidRequest)


@pytest.mark.parametrize("args", ["a", 1, b"a", {1}, object()])
def test_parameters_that_are_neither_sequence_nor_mapping(con: Connection, args: Any) -> None:
    with pytest.raises(exceptions.ProgrammingError, match="expected a sequence"):
        con.execute("SELECT * FROM t WHERE id = ?", args)
    with pytest.raises(exceptions.ProgrammingError, match="found a int"):
        con.execute(1)  # type: ignore[arg-type]
    with pytest.raises(exceptions.ProgrammingError, match="no SQL literal"):
        con.execute("SELECT * FROM t WHERE id = ?", [object()])


def test_a_conflict_is_operational_and_keeps_its_evidence(place: str, con: Connection) -> None:
    con.execute("UPDATE t SET name = 'mine' WHERE id = 1")
    with txlake.dbapi.connect(place) as other:
        other.execute("UPDATE t SET name = 'theirs' WHERE id = 1")
    with pytest.raises(con.OperationalError) as caught:
        con.commit()
    lost, cause = caught.value, caught.value.__cause__
    assert isinstance(cause, errors.Conflict)
    assert lost.evidence is cause.evidence
    assert lost.evidence is not None
    assert lost.evidence.table.endswith("t")
    assert lost.retry
    assert not con.in_transaction
    assert rows(con) == [(1, "theirs"), (2, "b")]


def test_an_error_fails_the_transaction(con: Connection) -> None:
    con.execute("INSERT INTO t VALUES (3, 'c')")
    with pytest.raises(exceptions.ProgrammingError, match="nope"):
        con.execute("INSERT INTO nope VALUES (1)")
    with pytest.raises(exceptions.ProgrammingError):
        con.execute("INSERT INTO t VALUES (4, 'd')")
    with pytest.raises(exceptions.ProgrammingError):
        con.commit()
    assert rows(con) == [(1, "a"), (2, "b")]
    with pytest.raises(exceptions.ProgrammingError, match="line 1"):
        con.execute("SELEKT 1")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.Deadlock("x"), exceptions.OperationalError),
        (errors.LockTimeout("x"), exceptions.OperationalError),
        (errors.OutcomeUnknown("x"), exceptions.OperationalError),
        (errors.TxlakeError("x"), exceptions.OperationalError),
        (errors.CorruptTable("x"), exceptions.InternalError),
        (errors.UnsupportedFeature("x"), exceptions.NotSupportedError),
        (errors.InvalidRequest("x"), exceptions.ProgrammingError),
        (errors.InvalidRequest("VACUUM can't run in a transaction"), exceptions.NotSupportedError),
        (errors.InvalidRequest("Spark: [DIVIDE_BY_ZERO] no"), exceptions.DataError),
        (errors.InvalidRequest("[DELTA_EXCEED_CHAR_VARCHAR_LIMIT]"), exceptions.DataError),
        (
            errors.InvalidRequest("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK"),
            exceptions.IntegrityError,
        ),
    ],
)
def test_what_each_error_becomes(error: errors.TxlakeError, kind: type[exceptions.Error]) -> None:
    made = exceptions.error_of(error)
    assert type(made) is kind
    assert str(made).startswith(str(error))
    assert (made.codes, made.retry) == (error.codes, False)


def test_closing_rolls_back_and_frees_the_locks(place: str) -> None:
    con = txlake.dbapi.connect(place)
    con.execute("LOCK TABLE t IN EXCLUSIVE MODE")
    con.execute("INSERT INTO t VALUES (3, 'c')")
    cursor = con.execute("SELECT * FROM t")
    cursor.fetchone()
    con.close()
    con.close()
    for call in (cursor.fetchone, cursor.fetchall, con.commit, con.rollback, con.cursor):
        with pytest.raises(exceptions.InterfaceError, match="closed"):
            call()
    with pytest.raises(exceptions.InterfaceError, match="closed"):
        cursor.execute("SELECT 1")
    with txlake.dbapi.connect(place) as other:
        other.execute("SET LOCK_TIMEOUT 0")
        assert other.execute("UPDATE t SET name = 'x' WHERE id > 0").rowcount == 2
    with txlake.dbapi.connect(place) as another:
        one = another.cursor()
        with one:
            pass
        with pytest.raises(exceptions.InterfaceError, match="cursor is closed"):
            one.execute("SELECT 1")


def test_a_block_commits_or_rolls_back(place: str) -> None:
    with suppress(ZeroDivisionError), txlake.dbapi.connect(place) as con:
        con.execute("DELETE FROM t WHERE id = 1")
        raise ZeroDivisionError
    with txlake.dbapi.connect(place) as con:
        con.execute("DELETE FROM t WHERE id = 2")
        con.commit()
        con.close()
    with txlake.dbapi.connect(place, database="default") as con:
        assert rows(con) == [(1, "a")]


def test_isolation(place: str, tmp_path: Path) -> None:
    with txlake.dbapi.connect(place, isolation="snapshot") as con:
        assert con.isolation_level == "snapshot"
        con.isolation_level = "Serializable"
        assert con.isolation_level == "serializable"
        [shown] = con.execute("SHOW TRANSACTION ISOLATION LEVEL").fetchall()
        assert "serializable" in str(shown).lower()
        con.isolation_level = None
        with pytest.raises(exceptions.ProgrammingError, match="chaos"):
            con.isolation_level = "chaos"
        con.autocommit = True
        con.execute("CREATE DATABASE d")
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"isolation": "chaos"}, "chaos"),
        ({"database": "nowhere"}, "nowhere"),
        ({"token": "x"}, "token"),
    )
    for options, what in refused:
        with pytest.raises(exceptions.ProgrammingError, match=what):
            txlake.dbapi.connect(place, **options)
    with pytest.raises(exceptions.ProgrammingError, match="location"):
        txlake.dbapi.connect()
    with txlake.dbapi.connect(place, database="d") as con:
        con.execute("CREATE TABLE e (id INT)")
        assert con.execute("SELECT * FROM d.e").fetchall() == []


def test_threads_share_a_connection(con: Connection) -> None:
    failed: list[BaseException] = []

    def add(first: int) -> None:
        try:
            for number in range(first, first + 5):
                con.execute("INSERT INTO t VALUES (?, 'thread')", [number])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(100 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    con.commit()
    assert len(rows(con)) == 22


def test_pandas_reads(con: Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        found = pd.read_sql("SELECT * FROM t WHERE id = ?", con, params=(2,))
    assert found.to_dict("records") == [{"id": 2, "name": "b"}]


def test_types_with_precision(spark: SparkSession, con: Connection) -> None:
    cursor = con.cursor()
    cursor.execute(
        "CREATE TABLE v (n DECIMAL(20,4), d DATE, z TIMESTAMP, w TIMESTAMP_NTZ, b BINARY, "
        "f DOUBLE, l BIGINT, k BOOLEAN, a ARRAY<INT>, m MAP<STRING, DECIMAL(5,1)>, "
        "s STRUCT<x: INT, y: ARRAY<TIMESTAMP>>)"
    )
    hour = datetime.timedelta(hours=2)
    zoned = datetime.datetime(2026, 3, 29, 3, 30, 0, 5, datetime.timezone(hour))
    plain = datetime.datetime.fromisoformat("1969-12-31T23:59:59.999999")
    cursor.execute(
        "INSERT INTO v SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, map('k', 1.5BD), "
        "named_struct('x', 1, 'y', array(?))",
        [
            Decimal("1234567890123456.7891"),
            datetime.date(1582, 10, 15),
            zoned,
            plain,
            b"\x00\xff'",
            float("nan"),
            2**62,
            True,
            [1, 2],
            zoned,
        ],
    )
    cursor.execute("SELECT * FROM v")
    assert [column[1:2] + column[4:6] for column in cursor.description or ()][:4] == [
        ("decimal(20,4)", 20, 4),
        ("date", None, None),
        ("timestamp", None, None),
        ("timestamp_ntz", None, None),
    ]
    row = cursor.fetchone()
    assert row is not None
    assert (row[:2], row[3:5]) == (
        (Decimal("1234567890123456.7891"), datetime.date(1582, 10, 15)),
        (plain, b"\x00\xff'"),
    )
    utc = zoned.astimezone(datetime.UTC)
    assert isinstance(row[2], datetime.datetime)
    assert (row[2], row[2].utcoffset()) == (utc, datetime.timedelta(0))
    assert row[5] != row[5]
    assert row[6:] == (2**62, True, [1, 2], {"k": Decimal("1.5")}, {"x": 1, "y": [utc]})
    table = cursor.execute("SELECT * FROM v").fetch_arrow_table()
    assert str(table.schema.field("n").type) == "decimal128(20, 4)"
    assert table["z"].to_pylist()[0] == utc
    cursor.execute("SELECT INTERVAL '1 02:03:04.5' DAY TO SECOND AS i, map(array(1), 'x') AS m")
    assert cursor.description is not None
    assert cursor.description[0][1] == txlake.dbapi.DATETIME
    expected = datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert cursor.fetchone() == (expected, {(1,): "x"})
    assert cursor.fetch_arrow_table().schema.types[0] == "duration[us]"
    assert con.execute("SELECT ?, upper('a')", [-expected]).fetchone() == (-expected, "A")
    cursor.execute("SELECT parse_json('1') AS v, id FROM range(2)")
    assert cursor.fetchone() == (1, 0)
    assert cursor.fetch_arrow_table().to_pydict() == {"v": [1], "id": [1]}


def test_rows_of_spark_are_read_as_they_are_fetched(spark: SparkSession, con: Connection) -> None:
    cursor = con.execute("SELECT id * 2 AS n FROM range(0, 100000, 1, 8)")
    assert (cursor.rowcount, cursor.fetchone(), cursor.fetchmany(2)) == (-1, (0,), [(2,), (4,)])
    assert len(cursor.fetchall()) == 99_997
    cursor.execute("SELECT name, count(*) AS c FROM t GROUP BY name ORDER BY name")
    assert cursor.fetch_df().to_dict("records") == [{"name": "a", "c": 1}, {"name": "b", "c": 1}]
    assert cursor.fetchall() == []
    with pytest.raises(exceptions.DataError) as caught:
        con.execute("SELECT 1 / id FROM range(0, 2)").fetchall()
    assert isinstance(caught.value.__cause__, errors.InvalidRequest)
    con.rollback()


def test_a_rollback_takes_rows_away_that_were_not_read(
    spark: SparkSession, con: Connection
) -> None:
    con.execute("INSERT INTO t VALUES (3, 'c')")
    cursor = con.execute("SELECT upper(name) FROM t")
    con.rollback()
    with pytest.raises(exceptions.ProgrammingError, match="rolled back before all rows"):
        cursor.fetchall()
    with pytest.raises(exceptions.ProgrammingError, match="rolled back before all rows"):
        cursor.fetch_arrow_table()


def test_a_table_that_is_dropped_between_fetches(
    spark: SparkSession, place: str, con: Connection
) -> None:
    cursor = con.execute("SELECT upper(name) AS n FROM t ORDER BY n")
    assert cursor.fetchone() == ("A",)
    con.commit()
    with txlake.dbapi.connect(place) as other:
        other.execute("DROP TABLE t")
    assert cursor.fetchall() == [("B",)]
    with pytest.raises(exceptions.ProgrammingError, match="t"):
        cursor.execute("SELECT * FROM t")


def test_a_log_line_says_that_spark_starts(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    monkeypatch.setattr(in_process, "local_spark", lambda: spark)
    with caplog.at_level(logging.INFO, "txlake.dbapi"):
        assert in_process._started() is spark
    assert [record.getMessage()[:12] for record in caplog.records] == ["Spark starts"]


def test_a_wall_time_keeps_its_type(con: Connection) -> None:
    # A time that clocks skip in many zones, and that a TIMESTAMP there can't be.
    skipped = WallTime.fromisoformat("2026-03-29 02:30")
    assert from_json(to_json(skipped)) == skipped
    assert type(from_json(to_json(skipped))) is WallTime
    con.execute("CREATE TABLE times (wall TIMESTAMP_NTZ)")
    con.execute("INSERT INTO times VALUES (?)", [skipped])
    assert con.execute("SELECT wall FROM times").fetchall() == [(skipped,)]
    assert not is_spark_started(con)


def test_lastrowid_is_the_generated_identity(con: Connection) -> None:
    con.execute(
        "CREATE TABLE n (id BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5), name STRING)"
    )
    cursor = con.execute("INSERT INTO n (name) VALUES ('a')")
    assert cursor.lastrowid == 5
    assert cursor.execute("INSERT INTO n (name) VALUES ('b'), ('c')").lastrowid == 7
    assert cursor.execute("INSERT INTO n VALUES (1, 'd')").lastrowid is None
    assert cursor.execute("UPDATE n SET name = 'e'").lastrowid is None
    cursor.executemany("INSERT INTO n (name) VALUES (?)", [["f"], ["g"]])
    assert cursor.lastrowid is None
    con.commit()
    con.autocommit = True
    assert con.execute("INSERT INTO n (name) VALUES ('h')").lastrowid == 10


def test_columns_with_the_tables_name_need_no_spark(con: Connection) -> None:
    for text in (
        "SELECT t.id, t.name AS n FROM t WHERE t.id = 2",
        "SELECT id, `t`.`name` AS n FROM `t` WHERE name = 'b'",
        "SELECT default.t.id, t.name AS n FROM default.t WHERE t.id = 2",
        "SELECT o.id, o.name AS n FROM t AS o WHERE o.id = 2",
    ):
        cursor = con.execute(text)
        assert [column[0] for column in cursor.description or ()] == ["id", "n"]
        assert cursor.fetchall() == [(2, "b")]
    con.commit()
    assert con.execute("SHOW VIEWS").fetchall() == []
    assert not is_spark_started(con)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT u.id FROM t",
        "SELECT t.id FROM t AS o",
        "SELECT other.t.id FROM default.t",
        "SELECT default.t.id FROM t AS o",
    ],
)
def test_a_column_of_another_name_is_none(con: Connection, text: str) -> None:
    with pytest.raises(exceptions.ProgrammingError, match="UNRESOLVED_COLUMN"):
        con.execute(text).fetchall()


def test_after_a_failed_statement_the_next_is_a_programming_error(con: Connection) -> None:
    with pytest.raises(exceptions.IntegrityError, match="NOT NULL"):
        con.execute("INSERT INTO t VALUES (NULL, 'x')")
    with pytest.raises(exceptions.ProgrammingError, match="was rolled back because a statement"):
        con.execute("SELECT * FROM t")
