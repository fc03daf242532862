"""A load that Great Expectations checks on a branch, before anybody sees it.

`python examples/great_expectations_audit.py FOLDER`, with great_expectations and txlake installed,
loads two days into a lake at FOLDER. The expectations are checked on the branch's tables as they
are, without a copy: a day that meets them is published, the other stays on its branch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import great_expectations as gx  # type: ignore[import-not-found, unused-ignore]
import great_expectations.expectations as gxe  # type: ignore[import-not-found, unused-ignore]
import pyarrow as pa
from pyspark.sql import SparkSession

import txlake


def expectations() -> Mapping[str, Sequence[gxe.Expectation]]:
    """Return what is expected of each table."""
    return {
        "orders": (
            gxe.ExpectColumnValuesToBeUnique(column="id"),
            gxe.ExpectColumnValuesToNotBeNull(column="day"),
            gxe.ExpectColumnValuesToBeBetween(column="pieces", min_value=1),
        ),
        "days": (gxe.ExpectColumnValuesToBeUnique(column="day"),),
    }


def failures(b: txlake.Branch) -> list[str]:
    """Return the expectations that the branch's tables don't meet, with values that show it."""
    context = gx.get_context(mode="ephemeral")
    source = context.data_sources.add_spark("branch")
    found = []
    for table, expected in expectations().items():
        whole = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("whole")
        batch = whole.get_batch(batch_parameters={"dataframe": b.read(table)})
        suite = context.suites.add(gx.ExpectationSuite(name=table, expectations=[*expected]))
        for one in batch.validate(suite).results:
            if not one.success:
                values = one.result.get("partial_unexpected_list", [])
                found.append(f"{table}: {one.expectation_config.type} {values}")
    return found


def load(lake: txlake.Lake, day: str, orders: Sequence[tuple[int, int]]) -> str:
    """Load a day on a branch, check it, and publish it; return what happened."""
    b = lake.branch(f"load/{day}", create=True, retention_ms=7 * 86_400_000)
    rows = pa.table(
        {
            "day": [day] * len(orders),
            "id": [number for number, _ in orders],
            "pieces": [pieces for _, pieces in orders],
        }
    )
    b.write(rows, "orders", mode="append")
    b.write(pa.table({"day": [day]}), "days", mode="append")
    found = failures(b)
    if found:
        return f"{day}: not published: {'; '.join(found)}"
    b.publish()
    return f"{day}: published"


def main(folder: str) -> list[str]:
    """Load two days, and return what happened."""
    spark = SparkSession.builder.appName("load").getOrCreate()
    with txlake.connect(folder, spark=spark) as lake:
        lake.sql("CREATE TABLE IF NOT EXISTS orders (day STRING, id BIGINT, pieces BIGINT)")
        lake.sql("CREATE TABLE IF NOT EXISTS days (day STRING)")
        outcomes = [
            load(lake, "2026-01-01", [(1, 5), (2, 3)]),
            load(lake, "2026-01-02", [(2, 4), (3, 0)]),
        ]
        for outcome in outcomes:
            print(outcome)
        lake.sql("SELECT * FROM orders ORDER BY id").show()
    return outcomes


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
