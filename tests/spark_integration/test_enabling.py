"""A Spark session is given to a lake and taken back: whose it is, whatever object is asked."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import SparkSession as Session

import txlake
from tests.lake.rows import rows
from txlake.errors import InvalidRequest
from txlake.lake.tables import enabled_sessions
from txlake.spark.spark_sessions import is_same
from txlake.spark_integration import enabling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def members() -> dict[tuple[type, str], Any]:
    """What stands in PySpark's classes that enable overrides."""
    session, frame = enabling._classes(Session.getActiveSession() or pytest.fail("no Spark"))
    kinds = {session: enabling._SESSION_OVERRIDES, frame: enabling._FRAME_OVERRIDES}
    return {(kind, name): vars(kind)[name] for kind, names in kinds.items() for name in names}


def tables(lake: txlake.Lake) -> list[str]:
    return sorted(row["tableName"] for row in lake.sql("SHOW TABLES").collect())


def test_enabling_is_undone_to_the_last_bit(lake: txlake.Lake, spark: SparkSession) -> None:
    before = members()
    assert txlake.enable(spark, lake) is spark
    during = members()
    assert all(during[key] is not before[key] for key in before)
    assert txlake.disable(spark) is spark
    assert members() == before
    assert "spark.txlake.enabled" not in spark.conf.getAll


def test_any_object_of_the_session_is_enabled(enabled: SparkSession, lake: txlake.Lake) -> None:
    early = enabled.range(3)
    early.write.saveAsTable("t")
    others = [Session.builder.getOrCreate(), Session.getActiveSession(), early.sparkSession]
    for other in others:
        assert other is not None
        assert other.table("t").count() == 3
        assert other.catalog.tableExists("t")
    clone: Any = Session(enabled.sparkContext, enabled._jsparkSession.cloneSession())
    assert clone.sql("SELECT * FROM t").count() == 3


@pytest.mark.usefixtures("own_active_session")
def test_the_active_session_stays_the_programs(lake: txlake.Lake, spark: SparkSession) -> None:
    other = spark.newSession()
    for own in (other, spark):
        own.createDataFrame([(1,)], "n int")  # makes the session the active one
        lake.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM VALUES (1), (2) AS v(n)")
        lake.sql("BEGIN ATOMIC FOR one AS SELECT 8 AS m DO INSERT INTO t SELECT m; END FOR; END")
        lake.sql("UPDATE t SET n = n + 1 WHERE n > 1")
        assert sorted(lake.read("t").collect()) == [(1,), (3,), (9,)]
        active = Session.getActiveSession()
        assert active is not None
        assert is_same(active, own)
        java: Any = own
        assert java._jvm.SparkSession.getActiveSession().contains(java._jsparkSession)


def test_another_session_is_not(enabled: SparkSession, lake: txlake.Lake) -> None:
    enabled.range(3).write.saveAsTable("t")
    other = enabled.newSession()
    assert not other.catalog.tableExists("t")
    assert "Lake" not in type(other.range(1).write).__name__
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        other.table("t").collect()
    with pytest.raises(AnalysisException, match="another Spark session"):
        txlake.enable(other, lake)


def test_two_lakes_in_two_sessions(
    enabled: SparkSession, lake: txlake.Lake, tmp_path: Path
) -> None:
    other = enabled.newSession()
    with txlake.connect(str(tmp_path / "second"), spark=other) as second:
        txlake.enable(other, second)
        enabled.range(1).write.saveAsTable("t")
        other.range(2).write.saveAsTable("t")
        assert (enabled.table("t").count(), other.table("t").count()) == (1, 2)
        txlake.disable(other)
        assert enabled.table("t").count() == 1
        with pytest.raises(AnalysisException):
            other.table("t").collect()


def test_a_stream_that_runs_keeps_its_lake(
    enabled: SparkSession, lake: txlake.Lake, tmp_path: Path
) -> None:
    clone: Any = Session(enabled.sparkContext, enabled._jsparkSession.cloneSession())
    txlake.enable(enabled, lake)
    clone.sql("CREATE TABLE first (id INT)")
    with txlake.connect(str(tmp_path / "second"), spark=enabled) as second:
        txlake.enable(enabled, second)
        clone.sql("CREATE TABLE again (id INT)")
        enabled.sql("CREATE TABLE other (id INT)")
        assert tables(second) == ["other"]
    assert tables(lake) == ["again", "first"]


def test_no_session_is_enabled_while_overrides_are_removed(
    enabled: SparkSession, lake: txlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = enabled.newSession()
    any_enabled = enabled_sessions.any_enabled
    with txlake.connect(str(tmp_path / "second"), spark=other) as second:
        beside = threading.Thread(target=txlake.enable, args=(other, second))

        def asked() -> bool:
            found = any_enabled()
            if not beside.ident:
                beside.start()
                beside.join(2)  # it waits for the one that asks
            return found

        monkeypatch.setattr(enabled_sessions, "any_enabled", asked)
        txlake.disable(enabled)
        beside.join(60)
        other.sql("CREATE TABLE t (id INT)")
        assert tables(second) == ["t"]
        txlake.disable(other)
    txlake.enable(enabled, lake)


def test_a_session_of_the_lake_and_its_transaction(lake: txlake.Lake, spark: SparkSession) -> None:
    with lake.session() as own:
        txlake.enable(spark, own)
        try:
            spark.range(1).write.saveAsTable("t")
            spark.sql("BEGIN")
            spark.range(5, 6).write.mode("append").saveAsTable("t")
            txlake.DeltaTable.forName(spark, "t").delete("id = 0")
            assert rows(spark.table("t")) == [(5,)]
            assert rows(lake.read("t")) == [(0,)]  # the lake's own session isn't in it
            spark.sql("COMMIT")
            assert rows(lake.read("t")) == [(5,)]
            spark.sql("BEGIN")
            spark.range(7, 8).write.mode("append").saveAsTable("t")
            with pytest.raises(AnalysisException):
                spark.sql("SELECT * FROM")  # a failed statement fails the transaction
            with pytest.raises(AnalysisException, match="rolled back"):
                spark.sql("COMMIT")
            assert rows(lake.read("t")) == [(5,)]
        finally:
            txlake.disable(spark)


def test_threads_append_at_once(enabled: SparkSession) -> None:
    enabled.range(0).write.saveAsTable("t")
    failures: list[BaseException] = []

    def append(number: int) -> None:
        try:
            enabled.range(number, number + 1).write.mode("append").saveAsTable("t")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert rows(enabled.table("t")) == [(0,), (1,), (2,), (3,)]


def test_bad_arguments(lake: txlake.Lake, spark: SparkSession) -> None:
    with pytest.raises(TypeError, match="expected a lake"):
        txlake.enable(spark, "warehouse")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a SparkSession"):
        txlake.enable("spark", lake)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="isn't enabled"):
        txlake.disable(spark)
    lake.close()
    with pytest.raises(AnalysisException, match="the lake is closed"):
        txlake.enable(spark, lake)


def test_what_another_package_puts_in_front_stays(
    lake: txlake.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Session.sql
    txlake.enable(spark, lake)
    ours = Session.sql

    def front(self: Any, *args: Any, **kwargs: Any) -> DataFrame:
        return ours(self, *args, **kwargs)

    monkeypatch.setattr(Session, "sql", front)
    spark.sql("CREATE TABLE t (id INT)")
    assert spark.sql("SELECT * FROM t").columns == ["id"]  # what the lake asks of Spark ends there
    txlake.disable(spark)
    assert Session.sql is front
    assert spark.sql("SELECT 1").count() == 1  # through ours, which lets it pass
    monkeypatch.undo()
    txlake.enable(spark, lake)
    txlake.disable(spark)
    assert Session.sql is before


DELTAS_OWN = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,org.example.Extension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.other": "org.example.Catalog",
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.app.name": "io.delta.is.no.class.here",
}


def test_a_builder_makes_enabled_sessions(spark: SparkSession, tmp_path: Path) -> None:
    plain = Session.builder
    for name, value in DELTAS_OWN.items():
        plain = plain.config(name, value)
    builder: Any = txlake.configure(plain, str(tmp_path / "lake"))
    assert isinstance(builder, Session.Builder)
    try:
        made = builder.config("spark.example", "3").getOrCreate()
        assert made.conf.get("spark.example") == "3"
        made.range(3).write.saveAsTable("t")
        made.sql("BEGIN")
        made.sql("DELETE FROM t")
        again = txlake.configure(Session.builder, str(tmp_path / "lake")).getOrCreate()
        again.sql("ROLLBACK")  # the same lake's session, in its transaction
        found = enabled_sessions.enabled_session(made)
        assert found is not None
        found.session.engine.close()
        again = txlake.configure(Session.builder, str(tmp_path / "lake")).getOrCreate()
        assert again.catalog.tableExists("t")
        other = txlake.configure(Session.builder, str(tmp_path / "other")).getOrCreate()
        assert not other.catalog.tableExists("t")
        assert rows(txlake.connect(str(tmp_path / "lake"), spark=spark).read("t")) == [
            (0,), (1,), (2,),
        ]  # fmt: skip
    finally:
        txlake.disable(spark)
        for name in ("spark.example", "spark.sql.catalog.other"):
            spark.conf.unset(name)
    assert builder._options == {
        "spark.sql.extensions": "org.example.Extension",
        "spark.sql.catalog.other": "org.example.Catalog",
        "spark.app.name": "io.delta.is.no.class.here",
        "spark.example": "3",
    }
    assert plain._options == DELTAS_OWN


def test_no_builder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"expected a builder, .* found str"):
        txlake.configure("local[2]", str(tmp_path))  # type: ignore[arg-type]


@pytest.fixture
def no_delta() -> Iterator[None]:
    before = {name for name in sys.modules if name.partition(".")[0] == "delta"}
    assert not before
    yield
    txlake.uninstall_as_delta()


def test_delta_is_txlake_on_request(no_delta: None, tmp_path: Path) -> None:
    txlake.install_as_delta()
    txlake.install_as_delta()  # nothing changes
    delta: Any = importlib.import_module("delta")
    tables: Any = importlib.import_module("delta.tables")
    exceptions: Any = importlib.import_module("delta.exceptions")
    assert delta.DeltaTable is tables.DeltaTable is txlake.DeltaTable
    assert exceptions.ConcurrentAppendException is txlake.errors.ConcurrentAppendException
    builder = object()
    assert delta.configure_spark_with_delta_pip(builder) is builder
    txlake.uninstall_as_delta()
    assert not {name for name in sys.modules if name.partition(".")[0] == "delta"}
    txlake.uninstall_as_delta()


def test_delta_that_is_imported_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "delta").mkdir()
    (tmp_path / "delta" / "__init__.py").write_text("")
    program = (
        "import delta, txlake\n"
        "try:\n    txlake.install_as_delta()\n"
        "except txlake.errors.InvalidRequest as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert "is imported already" in done.stdout, done.stderr
