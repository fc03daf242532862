"""dbt with dbt-spark's session method on a lake: run, run again, snapshot, test, docs.

python program.py FOLDER: a process of its own, in the environment .cache/dbt-spark. Prints
what the lake holds afterwards as one line of JSON; fails when a command of dbt does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from dbt.cli.main import dbtRunner  # type: ignore[import-not-found, unused-ignore]

import txlake
from tests.spark_session import spark_session

PROJECT = Path(__file__).resolve().parent / "project"
FIRST = "(1, '2026-01-01', 'open', 5, 1), (2, '2026-01-01', 'open', 3, 1)"
SECOND = "(2, '2026-01-01', 'sent', 3, 2), (3, '2026-01-02', 'open', 7, 2)"


def dbt(*words: str) -> None:
    """One command of dbt."""
    done = dbtRunner().invoke([*words, "--quiet"])
    if not done.success:
        sys.exit(f"dbt {' '.join(words)}: {done.exception or done.result}")


def main(folder: str) -> None:
    spark = spark_session()
    project = Path(folder) / "project"
    shutil.copytree(PROJECT, project)
    os.chdir(project)
    lake = txlake.connect(f"{folder}/lake", spark=spark)
    txlake.enable(spark, lake)
    lake.sql("CREATE DATABASE raw")
    lake.sql("CREATE TABLE raw.orders (id INT, day STRING, state STRING, pieces INT, at INT)")
    lake.sql(f"INSERT INTO raw.orders VALUES {FIRST}")
    dbt("run")
    dbt("snapshot")
    lake.sql(f"INSERT INTO raw.orders VALUES {SECOND}")
    dbt("run")
    dbt("snapshot")
    dbt("test")
    dbt("docs", "generate")
    print(json.dumps(_held(lake, project)))


def _held(lake: txlake.Lake, project: Path) -> dict[str, Any]:
    def rows(query: str) -> list[list[object]]:
        return [list(row) for row in lake.sql(query).collect()]

    catalog = json.loads((project / "target" / "catalog.json").read_text())
    history = lake.sql("DESCRIBE HISTORY shop.orders").collect()
    return {
        "orders": rows("SELECT id, state FROM shop.orders ORDER BY id"),
        "open_orders": rows("SELECT id FROM shop.open_orders ORDER BY id"),
        "per_day": rows("SELECT * FROM shop.per_day ORDER BY day"),
        "states": rows(
            "SELECT id, state, dbt_valid_to IS NULL FROM shop.states ORDER BY id, state"
        ),
        "operations": [row["operation"] for row in history],
        "views": rows("SHOW VIEWS IN shop"),
        "catalog": {
            name.rpartition(".")[2]: sorted(node["columns"])
            for name, node in catalog["nodes"].items()
        },
    }


if __name__ == "__main__":
    main(sys.argv[1])
