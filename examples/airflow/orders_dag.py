"""A DAG for Airflow 3: a day's orders, by the functions of orders_tasks.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orders_tasks
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

WAREHOUSE = "/data/warehouse"
INCOMING = "/data/incoming"

with DAG(
    dag_id="orders",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=True,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    prepare = PythonOperator(
        task_id="prepare",
        python_callable=orders_tasks.prepare,
        op_kwargs={"warehouse": WAREHOUSE},
    )
    load = PythonOperator(
        task_id="load",
        python_callable=orders_tasks.load,
        op_kwargs={"warehouse": WAREHOUSE, "incoming": INCOMING, "day": "{{ ds }}"},
    )
    book = PythonOperator(
        task_id="book",
        python_callable=orders_tasks.book,
        op_kwargs={"warehouse": WAREHOUSE, "day": "{{ ds }}"},
    )
    compact = PythonOperator(
        task_id="compact",
        python_callable=orders_tasks.compact,
        op_kwargs={"warehouse": WAREHOUSE},
    )
    prepare >> load >> book >> compact
