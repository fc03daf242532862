"""The example of dbt-txlake: builds that pass, fail, conflict and are killed, by unit.

python units_program.py FOLDER UNIT: a process of its own, in dbt's environment. Prints what a
reader of the lake saw after each command as one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dbt.cli.main import dbtRunner  # type: ignore[import-not-found, unused-ignore]

import txlake.dbapi
from tests.pages import ROOT
from tests.spark_session import spark_session

Look = Callable[[str], list[Any]]
KILLED = """
import os, sys
from dbt.cli.main import dbtRunner
from tests.spark_session import spark_session

def watch(event):
    if event.info.name == "LogTestResult":  # models were built, and tests have begun
        os.kill(os.getpid(), 9)

spark_session()
dbtRunner(callbacks=[watch]).invoke(sys.argv[1:])
"""


def main(folder: str, unit: str) -> None:
    spark_session()
    project = Path(folder) / "project"
    shutil.copytree(ROOT / "examples" / "dbt_txlake", project)
    os.chdir(project)
    warehouse = os.environ["SHOP_LAKE"] = f"{folder}/lake"
    seen: list[dict[str, Any]] = []

    def look(query: str) -> list[Any]:
        with txlake.dbapi.connect(warehouse) as con:
            return [list(row) for row in con.execute(query).fetchall()]

    def note(name: str, passed: bool, said: str = "") -> None:
        tables = [row[1] for row in look("SHOW TABLES IN shop")] if ["shop"] in databases() else []
        views = [row[1] for row in look("SHOW VIEWS IN shop")] if ["shop"] in databases() else []
        orders = look("SELECT id FROM shop.orders ORDER BY id") if "orders" in tables else []
        seen.append(
            {
                "what": name,
                "passed": passed,
                "tables": tables,
                "views": views,
                "orders": [row[0] for row in orders],
                "branches": [row[0] for row in look("SHOW BRANCHES")],
                "said": said,
            }
        )

    def databases() -> list[Any]:
        return look("SHOW DATABASES")

    def dbt(name: str, *words: str, watch: Callable[[Any], None] | None = None) -> None:
        said: list[str] = []

        def listen(event: Any) -> None:
            if event.info.level == "error" or event.info.msg.startswith("txlake adapter: "):
                said.append(event.info.msg)
            if watch is not None:
                watch(event)

        done = dbtRunner(callbacks=[listen]).invoke([*words, "--target", unit])
        note(name, bool(done.success), "\n".join([*said, str(done.exception or "")]))

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "build", "--target", unit],
        check=False,
        capture_output=True,
        text=True,
    )
    note("killed", killed.returncode != -signal.SIGKILL, killed.stdout)
    seen_during: list[list[Any]] = []

    def others(event: Any) -> None:
        if event.info.name == "LogTestResult" and not seen_during:
            seen_during.append(look("SHOW TABLES IN shop") if ["shop"] in databases() else [])

    dbt("first", "build", watch=others)
    sales = project / "seeds" / "sales.csv"
    sales.write_text(sales.read_text() + "4,2026-01-03,glue,1\n")
    dbt("failed", "build")
    dbt("retried", "retry")
    warned = (project / "models" / "shop.yml").read_text()
    (project / "models" / "shop.yml").write_text(
        warned.replace(
            "          - relationships:",
            "          - relationships:\n              config: {severity: warn}",
        )
    )
    dbt("warned", "build")
    sales.write_text(sales.read_text() + "5,2026-01-04,nails,1\n")

    interfered: list[str] = []

    def interfere(event: Any) -> None:
        if event.info.name == "LogTestResult" and not interfered:
            interfered.append(event.info.name)
            with txlake.dbapi.connect(warehouse) as con:
                con.execute("UPDATE shop.orders SET pieces = pieces + 1 WHERE id = 1")
                con.execute("INSERT INTO shop.orders VALUES (9, DATE '2026-01-05', 'nails', 1)")

    dbt("conflict", "build", watch=interfere)
    dbt("one", "run", "--select", "orders")
    sys.stdout.write(json.dumps([seen_during, seen]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
