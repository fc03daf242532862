"""Two Spark writers change one Delta table at the same time: `make demo`.

Every flight that left New York City in 2013 goes into Delta tables in a temporary folder. Then a
long DELETE meets an INSERT that commits first, under two isolation levels; four writers change rows
of one file while it is compacted; and what comes out is read by two engines that know nothing of
txlake.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import polars
import pyarrow
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

import nycflights
import screen
import txlake
from txlake.errors import ConcurrentAppendException, Conflict

DELETE_CANCELLED = "DELETE FROM flights WHERE dep_time IS NULL"
RENAME = "UPDATE airlines SET name = '{name}' WHERE carrier = '{carrier}'"
# What became of four of them since 2013.
RENAMED = {
    "MQ": "Envoy Air",
    "US": "American Airlines Group",
    "FL": "Southwest Airlines, was AirTran",
    "VX": "Alaska Airlines, was Virgin America",
}
COUNT = "SELECT count(*) AS flights, count_if(dep_time IS NULL) AS cancelled FROM flights"
BY_AIRLINE = """
SELECT name, count(*) AS flights, avg(dep_delay) AS minutes_late
FROM flights JOIN airlines ON flights.carrier = airlines.carrier
GROUP BY name ORDER BY minutes_late DESC, name
"""


def main() -> None:
    """The demo, chapter by chapter."""
    spark = screen.quiet_spark()
    with (
        tempfile.TemporaryDirectory(prefix="txlake-demo-") as folder,
        txlake.connect(f"{folder}/warehouse", spark=spark) as lake,
    ):
        late_flights = load(lake, spark, Path(folder))
        write_serializable(lake, late_flights)
        serializable(lake, late_flights)
        rows_of_one_file(lake)
        time_travel(lake)
        other_engines(lake)
    spark.stop()


def load(lake: txlake.Lake, spark: SparkSession, scratch: Path) -> DataFrame:
    """Writes the tables. The flights of New Year's Eve are kept back: they arrive late."""
    screen.chapter("1. Real data becomes Delta tables")
    frames = {name: nycflights.read(spark, name, scratch) for name in nycflights.TABLES}
    flights = frames["flights"]
    new_years_eve = "month = 12 AND day = 31"
    frames["flights"] = flights.where(f"NOT ({new_years_eve})")
    for name, frame in frames.items():
        lake.write(frame, name)
    rows = [(name, lake.read(name).count(), len(frame.columns)) for name, frame in frames.items()]
    screen.table("the lake", ("table", "rows", "columns"), rows)
    return flights.where(new_years_eve)


def race(lake: txlake.Lake, level: str, late_flights: DataFrame) -> None:
    """A DELETE and an INSERT do their work at the same time; the INSERT commits first.

    Raises what the DELETE's commit raises.
    """
    both = Barrier(2, timeout=300)

    def delete() -> None:
        with lake.session() as session, session.transaction(isolation=level) as tx:
            tx.sql(DELETE_CANCELLED)
            both.wait()  # have done their work
            both.wait()  # know that the INSERT has committed

    def insert() -> None:
        with lake.session() as session:
            with session.transaction(isolation=level) as tx:
                tx.write(late_flights, "flights", mode="append")
                both.wait()
            both.wait()

    with ThreadPoolExecutor(2) as threads:
        deleting, inserting = threads.submit(delete), threads.submit(insert)
    inserting.result()
    deleting.result()


def counted(lake: txlake.Lake) -> tuple[int, int]:
    """How many flights there are, and how many of them were cancelled."""
    row = lake.sql(COUNT).collect()[0]
    return row["flights"], row["cancelled"]


def write_serializable(lake: txlake.Lake, late_flights: DataFrame) -> None:
    """Both commit: the outcome is as if the DELETE had come first."""
    screen.chapter("2. WriteSerializable: both commit")
    screen.say("One session deletes cancelled flights; another adds New Year's Eve and is first:")
    screen.code(DELETE_CANCELLED)
    race(lake, "write_serializable", late_flights)
    late = late_flights.where("dep_time IS NULL").count()
    flights, cancelled = counted(lake)
    screen.say(
        f"Both committed: {flights:,} flights, {cancelled} of them cancelled, which came in "
        "meanwhile. It is as if the DELETE had run first and the INSERT after it."
    )
    assert cancelled == late > 0


def serializable(lake: txlake.Lake, late_flights: DataFrame) -> None:
    """The DELETE must see what committed before it: it conflicts, and succeeds when run again."""
    screen.chapter("3. Serializable: the DELETE may not overlook them")
    screen.code("RESTORE TABLE flights TO VERSION AS OF 0")
    lake.sql("RESTORE TABLE flights TO VERSION AS OF 0")
    try:
        race(lake, "serializable", late_flights)
    except ConcurrentAppendException as error:
        screen.conflict(error)
    else:
        raise AssertionError("expected the DELETE to conflict")

    screen.say("\nNothing of it was committed. lake.run runs a transaction, again when it must:")
    deleted = lake.run(
        lambda tx: tx.sql(DELETE_CANCELLED).collect()[0]["num_affected_rows"],
        isolation="serializable",
    )
    flights, cancelled = counted(lake)
    screen.say(f"{deleted:,} rows deleted, {cancelled} cancelled flights are left of {flights:,}.")
    assert cancelled == 0


def rows_of_one_file(lake: txlake.Lake) -> None:
    """Writers of different rows and a compaction all commit; writers of one row don't."""
    screen.chapter("4. Four writers and a compaction of one file: all commit")
    lake.sql("INSERT INTO airlines VALUES ('G4', 'Allegiant Air'), ('NK', 'Spirit Air Lines')")
    statements = [RENAME.format(name=name, carrier=carrier) for carrier, name in RENAMED.items()]
    statements.insert(2, "OPTIMIZE airlines")
    open_at_once = [lake.begin() for _ in statements]
    for tx, statement in zip(open_at_once, statements, strict=True):
        screen.code(statement)
        tx.sql(statement)
    for tx in open_at_once:
        tx.commit()
    rows = lake.sql("SELECT carrier, name FROM airlines").collect()
    names = {row["carrier"]: row["name"] for row in rows}
    assert {carrier: names[carrier] for carrier in RENAMED} == RENAMED
    screen.say(
        "All five were open at once, and committed in this order. The deletion vectors of one file "
        f"were united, then carried to the file that OPTIMIZE made of two: {len(names)} airlines."
    )

    screen.say("\nTwo that change the same row can't both stand:")
    first, second = lake.begin(), lake.begin()
    for tx, name in ((first, "AA"), (second, "American")):
        tx.sql(RENAME.format(name=name, carrier="AA"))
    first.commit()
    try:
        second.commit()
    except Conflict as error:
        screen.conflict(error)
    else:
        raise AssertionError("expected the second to conflict")


def time_travel(lake: txlake.Lake) -> None:
    """Every version stays readable."""
    screen.chapter("5. Every version is still there")
    history = lake.table("flights").history().orderBy("version").collect()
    rows = [
        (
            commit["version"],
            commit["operation"],
            commit["isolationLevel"],
            lake.read("flights", version=commit["version"]).count(),
        )
        for commit in history
    ]
    screen.table("flights", ("version", "operation", "isolation", "rows"), rows)


def other_engines(lake: txlake.Lake) -> None:
    """One question to three engines, in the same words."""
    screen.chapter("6. Any Delta reader reads it")
    screen.code(BY_AIRLINE.strip())
    place = {
        name: lake.table(name).detail().collect()[0]["location"] for name in ("flights", "airlines")
    }
    txlake_rows = [tuple(row) for row in lake.sql(BY_AIRLINE).collect()]

    delta_rs = QueryBuilder()
    for name in place:
        delta_rs.register(name, DeltaTable(place[name]))
    answer = pyarrow.table(delta_rs.execute(BY_AIRLINE).read_all())
    delta_rs_rows = list(zip(*answer.to_pydict().values(), strict=True))

    polars_tables = {name: polars.scan_delta(place[name]) for name in place}
    polars_rows = polars.SQLContext(polars_tables).execute(BY_AIRLINE).collect().rows()

    answers = {"txlake": txlake_rows, "delta-rs": delta_rs_rows, "polars": polars_rows}
    late = zip(*([minutes for _, _, minutes in rows] for rows in answers.values()), strict=True)
    screen.table(
        "minutes late, by three engines",
        ("airline", "flights", *answers),
        [
            (name, flights, *three)
            for (name, flights, _), three in zip(txlake_rows, late, strict=True)
        ],
    )
    if not txlake_rows == delta_rs_rows == polars_rows:
        raise SystemExit("the engines disagree")
    screen.say("The answers are equal, every digit of them.")


if __name__ == "__main__":
    main()
