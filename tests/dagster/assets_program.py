"""Assets of Dagster on a lake, materialized run by run: what `test_assets` runs.

Arguments: a folder for lakes, and the file of the documentation's page. Each check is an assert.
Dagster reads annotations before they are evaluated, so they are no texts here.
"""

import datetime
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import txlake
import txlake.dbapi
from txlake.dagster.io_manager import TxlakeIOManager
from txlake.errors import (
    Conflict,
    Evidence,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
)

FOLDER, PAGE = Path(sys.argv[1]), Path(sys.argv[2])
WAREHOUSE = str(FOLDER / "lake")
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-07")
SHOPS = dg.MultiPartitionsDefinition(
    {"day": DAYS, "shop": dg.StaticPartitionsDefinition(["a", "b'"])}
)


def rows(query: str) -> list[Any]:
    with txlake.dbapi.connect(WAREHOUSE) as connection:
        return sorted(tuple(row) for row in connection.execute(query).fetchall())


def run(assets: list[Any], *selection: Any, branch: str | None = None, **options: Any) -> Any:
    """Materialize the assets, or those selected of them."""
    retries = options.pop("max_retries", 3)
    manager = TxlakeIOManager(
        warehouse=WAREHOUSE, branch=branch, max_retries=retries, retry_wait_s=0
    )
    return dg.materialize(
        assets,
        resources={"io_manager": manager},
        selection=list(selection) or None,
        raise_on_error=False,
        **options,
    )


def done(assets: list[Any], *selection: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """Materialize the assets, and return the metadata of each."""
    result = run(assets, *selection, **options)
    assert result.success
    return {
        made.materialization.asset_key.path[-1]: {
            key: value.value for key, value in made.materialization.metadata.items()
        }
        for made in result.get_asset_materialization_events()
    }


def failed(result: Any) -> str:
    """Return the messages of the failed step's error and its causes."""
    assert not result.success
    [failure] = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    error, texts = failure.step_failure_data.error, []
    while error is not None:
        texts.append(error.message)
        error = error.cause
    return "\n".join(texts)


@dg.asset(key_prefix="shop")
def customers() -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2], "name": ["Ada", "Bo"]})


@dg.asset(ins={"customers": dg.AssetIn(["shop", "customers"], metadata={"columns": ["name"]})})
def names(customers: pl.DataFrame) -> pl.LazyFrame:
    assert customers.columns == ["name"]
    return customers.lazy()


@dg.asset(metadata={"mode": "append", "schema": "log"})
def seen(names: pa.Table) -> pa.Table:
    return names


@dg.asset
def again(seen: pl.LazyFrame, names: pd.DataFrame) -> pd.DataFrame:
    assert seen.collect().columns == names.columns.to_list() == ["name"]
    return names


def values_and_metadata() -> None:
    assets = [customers, names, seen, again]
    facts = done(assets)
    assert facts["customers"].pop("dagster/column_schema").columns[1].type == "string"
    assert facts["customers"] == {
        "dagster/table_name": "shop.customers",
        "rows": 2,
        "dagster/row_count": 2,
        "version": 0,
    }
    assert "dagster/row_count" not in facts["seen"]  # of all runs, which aren't counted
    facts = done(assets)
    assert (facts["customers"]["version"], facts["seen"]["version"]) == (1, 1)
    assert rows("SELECT name FROM log.seen") == [("Ada",), ("Ada",), ("Bo",), ("Bo",)]
    assert rows("SELECT name FROM again") == [("Ada",), ("Bo",)]
    assert SparkSession.getActiveSession() is None


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    days = [datetime.date.fromisoformat(key) for key in context.partition_keys]
    return pd.DataFrame({"day": days, "pieces": [day.day for day in days]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def copied(orders: DataFrame) -> DataFrame:
    return orders.where("pieces > 0")


@dg.asset
def total(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.select(pl.col("pieces").sum())


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def misplaced(context: dg.AssetExecutionContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [datetime.date(2026, 2, 1)]})


def partitions() -> None:
    assets = [orders, copied, total]
    for _ in range(2):
        for key in ("2026-01-02", "2026-01-03"):
            facts = done(assets, orders, copied, partition_key=key)
    assert facts["orders"]["dagster/partition_row_count"] == 1
    assert facts["copied"]["version"] == 3
    expected = [(datetime.date(2026, 1, day), day) for day in (2, 3)]
    assert rows("SELECT * FROM orders") == rows("SELECT * FROM copied") == expected
    between = {"start": "2026-01-03", "end": "2026-01-05"}
    tags = {f"dagster/asset_partition_range_{end}": key for end, key in between.items()}
    facts = done(assets, orders, tags=tags)
    assert facts["orders"]["rows"] == 3
    assert "dagster/partition_row_count" not in facts["orders"]
    done(assets, total)
    assert rows("SELECT pieces FROM total") == [(2 + 3 + 4 + 5,)]
    assert "2026-02-01" in failed(run([misplaced], partition_key="2026-01-02"))


@dg.asset(partitions_def=SHOPS, metadata={"partition_expr": {"day": "at", "shop": "shop"}})
def sales(context: dg.AssetExecutionContext) -> pa.Table:
    key = dict(context.partition_key.keys_by_dimension)
    at = datetime.datetime.fromisoformat(f"{key['day']}T23:59:59+00:00")
    return pa.table({"at": [at], "shop": [key["shop"]]})


@dg.asset(partitions_def=SHOPS, metadata={"partition_expr": {"day": "at", "shop": "shop"}})
def sold(sales: pa.Table) -> pa.Table:
    assert sales.num_rows == 1
    return sales


def partitions_of_two_dimensions() -> None:
    for day, shop in (("2026-01-02", "a"), ("2026-01-02", "b'"), ("2026-01-03", "a")) * 2:
        done([sales, sold], partition_key=dg.MultiPartitionKey({"day": day, "shop": shop}))
    assert [row[0] for row in rows("SELECT shop FROM sold")] == ["a", "a", "b'"]


def meeting(act: Callable[[], None], times: int) -> Callable[[], int]:
    """Let `act` be called after each of the next writes, and return how to end that, which says how
    many writes there were.
    """
    real, calls = txlake.Transaction.write, [0]

    def write(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        calls[0] += 1
        if calls[0] <= times:
            act()

    def end() -> int:
        txlake.Transaction.write = real  # type: ignore[method-assign]
        return calls[0]

    txlake.Transaction.write = write  # type: ignore[method-assign]
    return end


def overwrite_customers() -> None:
    with txlake.connect(WAREHOUSE) as lake:
        lake.write(pa.table({"id": [9], "name": ["Cy"]}), "shop.customers", "overwrite")


def conflicts() -> None:
    end = meeting(overwrite_customers, times=2)
    done([customers])
    assert end() == 3
    assert rows("SELECT id FROM shop.customers") == [(1,), (2,)]
    for retries, writes in ((1, 2), (0, 1)):
        end = meeting(overwrite_customers, times=9)
        text = failed(run([customers], max_retries=retries))
        assert end() == writes
        assert "Conflict" in text or "Concurrent" in text, text
        assert rows("SELECT id FROM shop.customers") == [(9,)]
    done([customers])


def what_is_tried_again() -> None:
    futile = Evidence(table="customers", read_version=0, winning_version=-1, retry=False)
    cases: list[tuple[TxlakeError, int]] = [
        (Unavailable("no answer"), 2),
        (OutcomeUnknown("the answer was lost"), 2),
        (Conflict("met by every try", futile), 1),
        (InvalidRequest("wrong"), 1),
    ]
    for error, writes in cases:

        def fail(error: TxlakeError = error) -> None:
            raise error

        end = meeting(fail, times=9)
        assert str(error) in failed(run([customers], max_retries=1))
        assert end() == writes


def appended_once() -> None:
    real, calls = txlake.Transaction.commit, [0]

    def commit(self: Any) -> None:
        real(self)
        calls[0] += 1
        if calls[0] == 1:
            raise OutcomeUnknown("the answer was lost")

    before = len(rows("SELECT * FROM log.seen"))
    txlake.Transaction.commit = commit  # type: ignore[method-assign]
    facts = done([customers, names, seen], seen)
    txlake.Transaction.commit = real  # type: ignore[method-assign]
    assert calls == [2]
    assert "version" not in facts["seen"]
    assert len(rows("SELECT * FROM log.seen")) == before + 2


@dg.asset(key_prefix="new")
def first() -> pa.Table:
    return pa.table({"id": [1]})


@dg.asset(deps=[customers, first])
def published(
    context: dg.AssetExecutionContext, io_manager: dg.ResourceParam[TxlakeIOManager]
) -> None:
    assert rows("SELECT id FROM shop.customers") == [(9,)]
    io_manager.publish(context)


@dg.asset_check(asset=customers, blocking=True)
def few(customers: pd.DataFrame) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=len(customers) < 2)


def branches() -> None:
    overwrite_customers()
    assert not run([customers, first, published, few], branch="run").success
    assert rows("SELECT id FROM shop.customers") == [(9,)]
    [kept] = rows("SHOW BRANCHES")
    assert kept[0].startswith("dagster/")
    facts = done([customers, first, published], branch="run")
    assert facts["customers"]["branch"].startswith("dagster/")
    assert "version" not in facts["customers"]
    assert rows("SELECT c.id FROM shop.customers c, new.first") == [(1,), (2,)]
    assert rows("SHOW BRANCHES") == [kept]
    overwrite_customers()
    done([customers], branch="try")
    assert rows("SELECT id FROM shop.customers") == [(9,)]
    assert [row[0] for row in rows("SHOW BRANCHES")] == [kept[0], "try"]
    assert "expected branch='run', found 'try'" in failed(
        run([customers, first, published], published, branch="try")
    )


def conflicts_of_a_publication() -> None:
    done([customers], branch="run")
    real = TxlakeIOManager.publish

    def publish(self: TxlakeIOManager, context: dg.AssetExecutionContext) -> None:
        overwrite_customers()
        real(self, context)

    TxlakeIOManager.publish = publish  # type: ignore[method-assign]
    overwrite_customers()
    text = failed(run([customers, first, published], branch="run"))
    TxlakeIOManager.publish = real  # type: ignore[method-assign]
    assert "Concurrent" in text, text
    assert rows("SELECT id FROM shop.customers") == [(9,)]


def values_outside_of_runs() -> None:
    manager = TxlakeIOManager(warehouse=WAREHOUSE, branch="run")
    made = dg.Definitions(assets=[customers, orders], resources={"io_manager": manager})
    assert made.load_asset_value(customers.key, python_type=pa.Table)["id"].to_pylist() == [9]
    day = made.load_asset_value(orders.key, python_type=pl.DataFrame, partition_key="2026-01-04")
    assert day["pieces"].to_list() == [4]


@dg.asset
def number() -> int:
    return 1


@dg.asset(metadata={"mode": "replace"})
def replaced() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset(key_prefix=["eu", "shop"])
def deep() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset(partitions_def=DAYS)
def undivided() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset(partitions_def=SHOPS, metadata={"partition_expr": {"day": "at"}})
def half_divided() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset
def unknown_type(names) -> pa.Table:  # type: ignore[no-untyped-def]
    return pa.table({"a": [1]})


@dg.asset
def never() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "a"})
def never_divided() -> pa.Table:
    return pa.table({"a": [1]})


@dg.asset
def reader(never: pa.Table) -> pa.Table:
    return never


@dg.asset
def reader_of_partitions(never_divided: pa.Table) -> pa.Table:
    return never_divided


def refusals() -> None:
    day = {"partition_key": "2026-01-02"}
    both = {"partition_key": dg.MultiPartitionKey({"day": "2026-01-02", "shop": "a"})}
    cases: list[tuple[list[Any], Any, dict[str, Any], str]] = [
        ([number], number, {}, "expected rows of pandas, polars, pyarrow or Spark, found int"),
        ([replaced], replaced, {}, "mode='replace': expected 'overwrite' or 'append'"),
        ([deep], deep, {}, "expected a key prefix of one part"),
        ([undivided], undivided, day, "expected a column as its metadata 'partition_expr'"),
        ([half_divided], half_divided, both, "a column for each of ['day', 'shop']"),
        (
            [customers, names, unknown_type],
            unknown_type,
            {},
            "expected an input that is annotated with",
        ),
        ([never, reader], reader, {}, "there is no table 'never'"),
        ([never_divided, reader_of_partitions], reader_of_partitions, {}, "materialize the asset"),
    ]
    before = rows("SHOW TABLES")
    for assets, chosen, options, message in cases:
        text = failed(run(assets, chosen, **options))
        assert re.search(f"InvalidRequest: .*{re.escape(message)}", text), text
    assert rows("SHOW TABLES") == before

    @dg.op
    def made() -> pa.Table:
        return pa.table({"a": [1]})

    @dg.job(resource_defs={"io_manager": TxlakeIOManager(warehouse=WAREHOUSE)})
    def job() -> None:
        made()

    assert "only assets are tables" in failed(job.execute_in_process(raise_on_error=False))


def the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [program] = re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert "/data/warehouse" in program
    program = program.replace("/data/warehouse", str(FOLDER / "page"))
    shown: list[str] = []
    exec(compile(program, str(PAGE), "exec"), {"print": lambda value: shown.append(str(value))})
    assert shown == re.findall(r"^ *print\(.*\)  # (.*)$", program, re.MULTILINE)


if __name__ == "__main__":
    warnings.simplefilter("ignore", dg.BetaWarning)
    for check in (
        values_and_metadata,
        conflicts,
        what_is_tried_again,
        appended_once,
        branches,
        conflicts_of_a_publication,
        partitions,
        partitions_of_two_dimensions,
        values_outside_of_runs,
        refusals,
        the_page,
    ):
        check()
        print(f"{check.__name__} holds", flush=True)
