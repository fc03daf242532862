"""What the demo prints: colours on a terminal, plain text in a pipe; and a Spark that is quiet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from txlake.errors import Conflict

console = Console(highlight=False)


def quiet_spark() -> SparkSession:
    """An ordinary local Spark session of two cores that logs errors alone."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = (Path(__file__).parent / "log4j2.properties").as_uri()
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log}")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def chapter(title: str) -> None:
    """A line across, with a title."""
    console.print()
    console.rule(f"[bold]{title}", align="left")


def say(text: str) -> None:
    """A sentence or two."""
    console.print(text)


def code(sql: str) -> None:
    """A statement."""
    console.print(Syntax(sql, "sql", background_color="default", word_wrap=True))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows, numbers to the right."""
    shown = Table(title=title, title_justify="left", title_style="")
    numbers = [
        all(isinstance(row[place], int | float) for row in rows) for place in range(len(columns))
    ]
    for name, is_number in zip(columns, numbers, strict=True):
        shown.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        shown.add_row(*map(_text, row))
    console.print(shown)


def conflict(error: Conflict) -> None:
    """A conflict: its name, its message, and its evidence field by field."""
    console.print(Panel(str(error), title=f"[red]{type(error).__name__}", title_align="left"))
    facts = error.evidence
    assert facts is not None
    fields = ("rule", "read_version", "winning_version", "winning_operation", "predicate", "rows")
    rows = [(name, getattr(facts, name)) for name in (*fields, "isolation", "retry", "advice")]
    table("error.evidence", ("attribute", "value"), rows)


def _text(value: object) -> str:
    match value:
        case bool() | None:
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case tuple():
            return "\n".join(map(str, value))
        case _:
            return str(value)
