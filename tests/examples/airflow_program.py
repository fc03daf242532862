"""The tasks of examples/airflow/sql_dag.py, one by one, and what a hook offers besides.

Arguments: the DAG's file, and the file that gets a line for each.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from airflow.exceptions import AirflowException
from airflow.providers_manager import ProvidersManager
from airflow.sdk.bases.hook import BaseHook

from txlake.airflow.hook import TxlakeHook

assert ProvidersManager().hooks["txlake"].hook_class_name == "txlake.airflow.hook.TxlakeHook"
report = open(sys.argv[2], "w")  # noqa: SIM115 (Airflow logs to standard output)
names = runpy.run_path(sys.argv[1])


def run(task_id: str) -> Any:
    task = names[task_id]
    task.render_template_fields({"ds": "2026-01-02"})
    return task.execute({"ds": "2026-01-02", "ti": None})


for _ in range(2):  # a task that is run again changes nothing
    for task_id in ("define", "load", "columns", "table", "total"):
        run(task_id)
        report.write(f"{task_id} done\n")

hook = BaseHook.get_connection("lake").get_hook()
assert isinstance(hook, TxlakeHook)
report.write(f"{hook.get_records('SELECT * FROM totals')}\n")
hook.insert_rows("orders", [(3, None, 1), (3, None, 0)], target_fields=["id", "day", "pieces"])
report.write(f"{hook.get_first('SELECT count(*) FROM orders')}\n")
report.write(f"{hook.inspector.get_table_names()}\n")
for task_id in ("columns", "table"):
    try:
        run(task_id)
    except AirflowException as error:
        report.write(f"{task_id}: {type(error).__name__}\n")
report.close()
