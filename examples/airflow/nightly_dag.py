"""A DAG for Airflow 3: a day on a branch, audited and published, by the functions of
nightly_tasks.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import nightly_tasks
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

WAREHOUSE = "/data/warehouse"
INCOMING = "/data/incoming"

with DAG(
    dag_id="nightly",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    prepare = PythonOperator(
        task_id="prepare",
        python_callable=nightly_tasks.prepare,
        op_kwargs={"warehouse": WAREHOUSE},
    )
    branch = PythonOperator(
        task_id="branch",
        python_callable=nightly_tasks.branch,
        op_kwargs={"warehouse": WAREHOUSE, "day": "{{ ds }}"},
    )
    load = PythonOperator(
        task_id="load",
        python_callable=nightly_tasks.load,
        op_kwargs={"warehouse": WAREHOUSE, "incoming": INCOMING, "day": "{{ ds }}"},
    )
    audit = PythonOperator(
        task_id="audit",
        python_callable=nightly_tasks.audit,
        op_kwargs={"warehouse": WAREHOUSE, "day": "{{ ds }}"},
        retries=0,  # it would find the same again
    )
    publish = PythonOperator(
        task_id="publish",
        python_callable=nightly_tasks.publish,
        op_kwargs={"warehouse": WAREHOUSE, "incoming": INCOMING, "day": "{{ ds }}"},
    )
    prepare >> branch >> load >> audit >> publish
