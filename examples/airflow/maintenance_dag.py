"""A DAG for Airflow 3: a round of maintenance each hour, of at most 30 minutes.

Several may run at once, on any hosts: they share the tables. One that is killed loses nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

WAREHOUSE = "/data/warehouse"

with DAG(
    dag_id="maintenance",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
):
    BashOperator(
        task_id="maintain",
        bash_command=f"txlake maintain {WAREHOUSE} --once --budget 30m --json",
        execution_timeout=timedelta(hours=1),
    )
