"""A DAG for Airflow 3 of SQL alone: a load in one transaction, then checks of what it loaded.

The connection `lake` has the type `txlake`, which Airflow knows where txlake is installed, with
`{"warehouse": "/data/warehouse"}` as its extra, or a server's host, port and token.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.common.sql.operators.sql import (
    SQLColumnCheckOperator,
    SQLExecuteQueryOperator,
    SQLTableCheckOperator,
    SQLValueCheckOperator,
)
from airflow.sdk import DAG

with DAG(
    dag_id="sql_on_a_lake",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"conn_id": "lake", "retries": 3},
):
    define = SQLExecuteQueryOperator(
        task_id="define",
        sql=[
            "CREATE TABLE IF NOT EXISTS orders (id BIGINT, day DATE, pieces INT)",
            "CREATE TABLE IF NOT EXISTS totals (day DATE, pieces BIGINT)",
        ],
    )
    load = SQLExecuteQueryOperator(  # both tables or none
        task_id="load",
        sql="""
            DELETE FROM orders WHERE day = DATE '{{ ds }}';
            INSERT INTO orders VALUES (1, DATE '{{ ds }}', 5), (2, DATE '{{ ds }}', 7);
            DELETE FROM totals WHERE day = DATE '{{ ds }}';
            INSERT INTO totals
                SELECT day, sum(pieces) FROM orders WHERE day = DATE '{{ ds }}' GROUP BY day
        """,
    )
    columns = SQLColumnCheckOperator(
        task_id="columns",
        table="orders",
        column_mapping={
            "id": {"null_check": {"equal_to": 0}, "unique_check": {"equal_to": 0}},
            "pieces": {"min": {"geq_to": 1}},
        },
    )
    table = SQLTableCheckOperator(
        task_id="table",
        table="orders",
        checks={"two_orders": {"check_statement": "count(*) = 2"}},
    )
    total = SQLValueCheckOperator(
        task_id="total",
        sql="SELECT sum(pieces) FROM totals WHERE day = DATE '{{ ds }}'",
        pass_value=12,
    )
    define >> load >> [columns, table, total]
