"""The example of dbt-txlake on a lake behind a server: by transaction, then by branch.

python served_program.py FOLDER: a process of its own, in dbt's environment, with the server in a
thread. Prints what the lake had after each build as one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from dbt.cli.main import dbtRunner

import txlake
from tests.dbapi.served import TOKEN, Served
from tests.pages import ROOT
from tests.spark_session import spark_session


def main(folder: str) -> None:
    project = Path(folder) / "project"
    shutil.copytree(ROOT / "examples" / "dbt_txlake", project)
    os.chdir(project)
    seen: list[dict[str, Any]] = []
    with txlake.connect(f"{folder}/lake", spark=spark_session()) as lake:
        served = Served(lake)
        with served.client:
            served.start()
            os.environ["SHOP_SERVER"] = served.dsn.removeprefix("txlake+")
            os.environ["TXLAKE_TOKEN"] = TOKEN
            sales = project / "seeds" / "sales.csv"

            def build(line: str) -> None:
                sales.write_text(sales.read_text() + line)
                done = dbtRunner().invoke(["build", "--target", "served"])
                orders = lake.sql("SELECT id FROM shop.orders ORDER BY id").collect()
                seen.append({"passed": bool(done.success), "orders": [row.id for row in orders]})

            build("")
            build("4,2026-01-03,glue,1\n")  # a test fails
            profiles = project / "profiles.yml"
            profiles.write_text(profiles.read_text().replace("unit: build", "unit: branch"))
            sales.write_text(sales.read_text().replace("glue", "nails"))
            build("5,2026-01-03,nails,1\n")
            served.stop()
        seen.append({"branches": lake.sql("SHOW BRANCHES").count()})
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
