"""An order system on one lake: `make demo`.

Tickets are sold for the flights that left New York City on New Year's Eve 2013, with the seats that
their planes had. An order changes three tables in two databases: all of them or none, on plain
folders, which any Delta reader reads.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars
import pyarrow
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow.compute import field
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import sum as sum_of

import another_engine
import nycflights
import screen
import txlake
from txlake.errors import InvalidRequest, SerializableIsolationViolation

SOLD = """
SELECT (SELECT sum(seats - free) FROM flights) AS seats_taken,
       (SELECT coalesce(sum(seats), 0) FROM sales.orders) AS seats_sold,
       (SELECT coalesce(sum(dollars), 0) FROM billing.payments) AS dollars
"""
ORDER = """
BEGIN;
INSERT INTO sales.orders VALUES ({order}, {flight}, '{name}', {seats});
UPDATE flights SET free = free - {seats} WHERE id = {flight};
INSERT INTO billing.payments VALUES ({order}, {dollars});
"""
CLICKS = 200
FREE = "SELECT sum(free) AS free FROM flights"
LOCKS = """
SELECT request_session_id AS session, resource_type, request_mode, request_status,
       blocking_session_id AS blocked_by
FROM sys.dm_tran_locks WHERE resource_type <> 'DATABASE' ORDER BY request_status, session
"""


def main() -> None:
    """The demo, chapter by chapter."""
    spark = screen.quiet_spark()
    with (
        tempfile.TemporaryDirectory(prefix="txlake-demo-") as folder,
        txlake.connect(f"{folder}/warehouse", spark=spark) as lake,
    ):
        load(lake, spark, Path(folder))
        an_order(lake)
        a_failure_in_the_middle(lake)
        many_at_once(lake)
        two_users(lake)
        a_definition_waits(lake)
        a_stream(lake, Path(folder))
        other_engines(lake)
        an_open_table(lake, f"{folder}/warehouse")
        few_files(lake)
    spark.stop()


def load(lake: txlake.Lake, spark: SparkSession, scratch: Path) -> None:
    """Write the flights with their planes' seats, and the two tables that orders go to."""
    screen.chapter("1. A lake: three tables in three databases, in a folder")
    for name in ("flights", "planes"):
        nycflights.read(spark, name, scratch).createOrReplaceTempView(f"csv_{name}")
    lake.sql(
        "CREATE TABLE flights AS SELECT row_number() OVER (ORDER BY sched_dep_time, f.tailnum) "
        "AS id, carrier, flight, origin, dest, sched_dep_time, seats, seats AS free "
        "FROM csv_flights f JOIN csv_planes p ON f.tailnum = p.tailnum "
        "WHERE month = 12 AND day = 31"
    )
    for statement in (
        "CREATE DATABASE sales",
        "CREATE DATABASE billing",
        "CREATE TABLE sales.orders (id BIGINT, flight BIGINT, name STRING, seats INT)",
        "CREATE TABLE billing.payments (order_id BIGINT, dollars DECIMAL(9, 2))",
        "ALTER TABLE billing.payments ADD CONSTRAINT paid CHECK (dollars > 0)",
    ):
        screen.code(statement)
        lake.sql(statement)
    row = lake.sql("SELECT count(*), sum(free) FROM flights").collect()[0]
    screen.say(f"{row[0]:,} flights of New Year's Eve 2013 have {row[1]:,} free seats.")


def sold(on: txlake.LakeSession, who: str) -> tuple[int, int, float]:
    """What somebody sees of all three tables, in one query."""
    row = on.sql(SOLD).collect()[0]
    seen = (row["seats_taken"], row["seats_sold"], float(row["dollars"]))
    assert seen[0] == seen[1], "an order is all there, or not at all"
    screen.say(f"{who}: {seen[0]} seats taken, {seen[1]} sold, ${seen[2]:,.2f} paid")
    return seen


def an_order(lake: txlake.Lake) -> None:
    """One transaction over three tables, and a reader beside it."""
    screen.chapter("2. An order changes three tables")
    order = ORDER.format(order=1, flight=17, name="Ada", seats=2, dollars=398)
    screen.code(f"{order.strip()}\nCOMMIT;")
    with lake.session() as clerk, lake.session() as reader:
        clerk.sql(order)
        sold(clerk, "the clerk, before COMMIT")
        assert sold(reader, "a reader, at the same time") == (0, 0, 0.0)
        clerk.sql("COMMIT")
        assert sold(reader, "the reader, after COMMIT") == (2, 2, 398.0)
    rows = lake.sql(
        "SELECT sequence, table, version, operation FROM txlake.commits "
        "WHERE sequence = (SELECT max(sequence) FROM txlake.commits) ORDER BY table"
    ).collect()
    screen.table(
        "one instant of the lake",
        ("sequence", "table", "version", "operation"),
        list(map(tuple, rows)),
    )


def a_failure_in_the_middle(lake: txlake.Lake) -> None:
    """The third statement fails: the first two never were."""
    screen.chapter("3. The payment is refused: nothing of the order stays")
    with lake.session() as clerk:
        try:
            clerk.sql(ORDER.format(order=2, flight=17, name="Bob", seats=1, dollars=0))
        except InvalidRequest as error:
            screen.say(f"[red]{type(error).__name__}[/red]: {str(error).splitlines()[0]}")
        else:
            raise AssertionError("expected the payment to be refused")
        try:
            clerk.sql("COMMIT")
        except InvalidRequest as error:
            screen.say(f"[red]COMMIT[/red]: {error}")
        clerk.sql("ROLLBACK")
    assert sold(lake, "everybody") == (2, 2, 398.0)


def many_at_once(lake: txlake.Lake) -> None:
    """Orders of different flights, and a compaction, are open at the same time and all commit."""
    screen.chapter("4. Four clerks and a compaction at the same time: all commit")
    clerks = [lake.begin() for _ in range(4)]
    for number, tx in enumerate(clerks):
        order = ORDER.format(
            order=10 + number, flight=20 + number, name="Eve", seats=3, dollars=500
        )
        tx.sql(order.replace("BEGIN;", ""))
    lake.sql("OPTIMIZE flights")
    for tx in clerks:
        tx.commit()
    assert sold(lake, "everybody") == (14, 14, 2398.0)
    screen.say("Each changed a row of the same file, which OPTIMIZE rewrote meanwhile.")


def two_users(lake: txlake.Lake) -> None:
    """The timeline in Redshift's documentation: write skew over two tables, at both levels."""
    screen.chapter("5. Two users, two levels: SNAPSHOT and SERIALIZABLE")
    rows: list[tuple[object, ...]] = []
    for level in ("SNAPSHOT", "SERIALIZABLE"):
        lake.sql(f"CREATE DATABASE {level.lower()}_db ISOLATION LEVEL {level}")
        one, two = (f"{level.lower()}_db.{name}" for name in ("tab1", "tab2"))
        lake.sql(f"CREATE TABLE {one} (id INT); CREATE TABLE {two} (id INT)")
        with lake.session() as user1, lake.session() as user2:
            user1.sql(f"BEGIN; SELECT * FROM {one}")
            user2.sql(f"BEGIN; SELECT * FROM {two}")
            user1.sql(f"INSERT INTO {two} VALUES (1)")
            user2.sql(f"INSERT INTO {one} VALUES (1)")
            user1.sql("COMMIT")
            try:
                user2.sql("COMMIT")
                rows.append((level, "COMMIT", "COMMIT"))
            except SerializableIsolationViolation as error:
                rows.append((level, "COMMIT", f"{type(error).__name__} {error.codes}"))
                lost = error
    screen.say("Each reads one table and writes into the one that the other has read.")
    screen.table("what becomes of them", ("database", "user 1", "user 2"), rows)
    assert [str(row[2])[:6] for row in rows] == ["COMMIT", "Serial"]
    screen.conflict(lost)


def a_definition_waits(lake: txlake.Lake) -> None:
    """ALTER TABLE waits for an open order; everybody can see for whom."""
    screen.chapter("6. A definition waits for the orders, and shows for whom")
    with lake.session() as clerk, lake.session() as owner, ThreadPoolExecutor(1) as thread:
        clerk.sql(ORDER.format(order=3, flight=18, name="Kim", seats=1, dollars=199))
        altering = thread.submit(owner.sql, "ALTER TABLE flights ADD COLUMN gate STRING")
        rows: list[tuple[object, ...]] = []
        while not any("WAIT" in row for row in rows):
            rows = [tuple(row) for row in lake.sql(LOCKS).collect()]
        screen.code(LOCKS.strip())
        columns = ("session", "resource_type", "request_mode", "request_status", "blocked_by")
        screen.table("sys.dm_tran_locks", columns, rows)
        assert not altering.done()
        clerk.sql("COMMIT")
        altering.result()
    assert "gate" in lake.read("flights").columns
    sold(lake, "everybody, with the new column")


def a_stream(lake: txlake.Lake, scratch: Path) -> None:
    """Request become orders: a micro-batch is one transaction over three tables, once."""
    screen.chapter("7. A stream into three tables, and a failure in the middle of it")
    lake.sql(
        "CREATE TABLE sales.requests (id BIGINT, flight BIGINT, name STRING, seats INT, "
        "dollars DECIMAL(9, 2)); "
        "INSERT INTO sales.requests VALUES (20, 30, 'Ann', 2, 400), (21, 31, 'Ben', 1, 150)"
    )
    fails = True

    def book(tx: txlake.Transaction, requests: DataFrame) -> None:
        orders = requests.select("id", "flight", "name", "seats")
        tx.write(orders, "sales.orders", mode="append")
        if fails:
            raise RuntimeError("the connection to the bank is lost")
        taken = requests.groupBy("flight").agg(sum_of("seats").cast("int").alias("seats"))
        free = tx.table("flights").alias("f").merge(taken.alias("t"), "f.id = t.flight")
        free.whenMatchedUpdate(set={"free": "f.free - t.seats"}).execute()
        paid = requests.selectExpr("id AS order_id", "dollars")
        tx.write(paid, "billing.payments", mode="append")

    def run() -> None:
        lake.foreach_batch(
            lake.read_stream("sales.requests"),
            book,
            checkpoint=f"{scratch}/checkpoint",
            trigger={"availableNow": True},
        ).awaitTermination()

    before = sold(lake, "before the stream")
    try:
        run()
    except StreamingQueryException:
        screen.say("[red]The query stops[/red]: the connection to the bank is lost")
    else:
        raise AssertionError("expected the query to stop")
    assert sold(lake, "after it stopped in the middle") == before
    fails = False
    run()
    assert sold(lake, "started again") == (18, 18, 3147.0)
    lake.sql("INSERT INTO sales.requests VALUES (22, 30, 'Cem', 4, 900)")
    run()
    run()
    assert sold(lake, "one more request, and started twice") == (22, 22, 4047.0)


def other_engines(lake: txlake.Lake) -> None:
    """Other engines read what is published, and don't write past the catalog."""
    screen.chapter("8. Any Delta reader reads it; nobody writes past the catalog")
    place = lake.table("flights").detail().collect()[0]["location"]
    screen.code(FREE)
    delta_rs = QueryBuilder().register("flights", DeltaTable(place))
    polars_tables = polars.SQLContext(flights=polars.scan_delta(place))
    answers = {
        "txlake": lake.sql(FREE).collect()[0][0],
        "delta-rs": pyarrow.table(delta_rs.execute(FREE).read_all())[0][0].as_py(),
        "polars": polars_tables.execute(FREE).collect().item(),
    }
    screen.table("free seats", ("engine", "seats"), list(answers.items()))
    if len(set(answers.values())) != 1:
        raise SystemExit("the engines disagree")
    screen.say("The answers are equal.")
    try:
        write_deltalake(place, polars.read_delta(place).head(1), mode="append")
    except Exception as error:
        screen.say(f"delta-rs writes: [red]{type(error).__name__}[/red]: {error}")
    else:
        raise AssertionError("expected delta-rs to refuse")


def an_open_table(lake: txlake.Lake, warehouse: str) -> None:
    """Another engine commits between two statements of a transaction of ours, and both stand."""
    screen.chapter("9. An open table: another engine commits between two of ours")
    lake.sql(
        "CREATE TABLE sales.refunds (order_id BIGINT, dollars BIGINT) "
        "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"
    )
    theirs = pyarrow.table({"order_id": [12], "dollars": [50]})
    with another_engine.served(warehouse) as server, lake.session() as clerk:
        screen.code(f"txlake serve {warehouse}")
        engine = another_engine.Appender(server, "spark_catalog", "sales", "refunds")
        clerk.sql("BEGIN; INSERT INTO sales.refunds VALUES (10, 100)")
        clerk.sql("INSERT INTO billing.payments VALUES (30, 25)")
        screen.say(f"The other engine appends: {engine.append(theirs)}")
        clerk.sql("COMMIT")
        screen.say("The clerk's COMMIT, of two tables, goes on after it.")
        refused = engine.append(theirs)
        screen.say(f"The other engine appends to the version that it knew: [red]{refused}[/red]")
        engine.load()
        screen.say(f"It loads the table again, and appends: {engine.append(theirs)}")
    rows = lake.sql("DESCRIBE HISTORY sales.refunds").collect()
    made = [(row["version"], row["operation"], row["engineInfo"].partition("/")[0]) for row in rows]
    screen.table("who made sales.refunds", ("version", "operation", "engine"), made)
    assert [engine for _, _, engine in made[:3]] == ["another-engine", "txlake", "another-engine"]
    assert refused == 409
    total = lake.sql("SELECT sum(dollars) AS dollars FROM sales.refunds").collect()[0]["dollars"]
    screen.say(f"${total} are paid back, and nothing was lost.")


def few_files(lake: txlake.Lake) -> None:
    """Two writers insert row by row; maintenance beside them keeps the table at a few files."""
    screen.chapter("10. Two writers hammer a table, and it stays at a handful of files")
    lake.sql(
        "CREATE TABLE sales.clicks (writer INT, number INT) "
        "TBLPROPERTIES ('txlake.maintenance.minSmallFiles' = '8')"
    )
    log = txlake.Log(lake.table("sales.clicks").detail().collect()[0]["location"])
    screen.code('lake.maintain(every="100ms")')
    counts: list[tuple[object, ...]] = []
    with lake.maintain(every="100ms"), ThreadPoolExecutor(2) as threads:
        for first in range(0, CLICKS, CLICKS // 4):
            writers = [threads.submit(click, lake, writer, first) for writer in (1, 2)]
            seen = [log.snapshot().files().num_rows]
            while not all(writer.done() for writer in writers):
                seen.append(log.snapshot().files().num_rows)
            for writer in writers:
                writer.result()  # no INSERT was aborted
            counts.append((2 * (first + CLICKS // 4), max(seen)))
    lake.maintain()
    left = log.snapshot().files().num_rows
    screen.table("sales.clicks", ("INSERTs, each a file", "files of the table, at most"), counts)
    done = lake.view("txlake.maintenance").filter(field("table") == "sales.clicks")
    packed = done.filter(field("need") == "optimize").to_pylist()
    screen.say(f"{packed[0]['reason']}: the newest of {len(packed)} packings.")
    row = lake.sql("SELECT count(*), count(DISTINCT writer, number) FROM sales.clicks").collect()[0]
    screen.say(f"All {row[0]} rows are there, in {left} files.")
    assert tuple(row) == (2 * CLICKS, 2 * CLICKS)
    assert left <= 16


def click(lake: txlake.Lake, writer: int, first: int) -> None:
    """Insert a quarter of a writer's rows, each in a transaction and a file of its own."""
    with lake.session() as session:
        for number in range(first, first + CLICKS // 4):
            session.sql(f"INSERT INTO sales.clicks VALUES ({writer}, {number})")


if __name__ == "__main__":
    main()
