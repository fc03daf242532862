"""The example of dbt on a branch: published, not published for a failed test, then a conflict.

python branch_program.py FOLDER: a process of its own, in the environment .cache/dbt-spark.
Prints what was there after each build as one line of JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import txlake
from tests.pages import ROOT
from tests.spark_session import spark_session


def rows(lake: txlake.LakeSession, query: str) -> list[list[object]]:
    return sorted([list(row) for row in lake.sql(query).collect()])


def main(folder: str) -> None:
    spark = spark_session()
    project = Path(folder) / "project"
    shutil.copytree(ROOT / "examples" / "dbt_branch", project)
    sys.path.insert(0, str(project))
    import build  # type: ignore[import-not-found, unused-ignore]

    warehouse = f"{folder}/lake"
    found: list[dict[str, Any]] = []
    meanwhile: list[str] = []

    def others(event: Any) -> None:
        """What somebody else does on main, once the first test has ended."""
        if event.info.name == "LogTestResult" and meanwhile:
            with txlake.connect(warehouse, spark=spark) as lake:
                lake.sql(meanwhile.pop())

    def night(*statements: str) -> None:
        with txlake.connect(warehouse, spark=spark) as lake:
            for statement in statements:
                lake.sql(statement)
        published = build.build(warehouse, callbacks=[others])
        with txlake.connect(warehouse, spark=spark) as lake:
            branches = [row.name for row in lake.branches().collect()]
            on = {name: lake.branch(name) for name in branches}
            orders = "SELECT id, pieces FROM shop.orders"
            found.append(
                {
                    "published": published,
                    "orders": rows(lake, orders),
                    "per_day": rows(lake, "SELECT * FROM shop.per_day"),
                    "large": rows(lake, "SELECT id FROM shop.large_orders"),
                    "branches": {name: rows(on[name], orders) for name in branches},
                    "versions": lake.sql("DESCRIBE HISTORY shop.orders").count(),
                }
            )

    insert = "INSERT INTO raw.orders VALUES"
    with txlake.connect(warehouse, spark=spark) as lake:
        lake.sql("CREATE DATABASE raw")
        lake.sql("CREATE TABLE raw.orders (id INT, day STRING, pieces INT, at INT)")
    night(f"{insert} (1, 'mon', 5, 1), (2, 'mon', 3, 1)")
    night(f"{insert} (3, NULL, 7, 2)")
    night("UPDATE raw.orders SET day = 'tue' WHERE id = 3")
    meanwhile.append("UPDATE shop.orders SET pieces = 6 WHERE id = 2")
    night(f"{insert} (2, 'mon', 9, 3)")
    night()
    night("CREATE TAG dbt", f"{insert} (4, 'wed', 1, 4)")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
