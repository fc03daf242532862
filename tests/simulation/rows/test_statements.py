"""The same statements have the same results by Spark and by the row plane, on equal tables.

Rows, counts, errors and versions are the same; a transaction beside a concurrent writer gets the
same verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.rows import programs
from tests.simulation.rows.planes import Planes, StatementResult
from txlake.conflict.levels import Level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BOUNDED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=6,
    suppress_health_check=list(HealthCheck),
)
_ROWS = "(0, 'a', 7), (1, 'a', 10), (2, 'b', NULL), (3, NULL, 50), (4, 'c', 3)"


@pytest.fixture(scope="module")
def planes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    opened = Planes(tmp_path_factory.mktemp("planes"), spark)
    yield opened
    opened.close()


@pytest.mark.broad
@_BOUNDED
@given(
    layout=st.sampled_from(programs.LAYOUTS),
    statements=st.lists(programs.statements, min_size=2, max_size=6),
)
def test_statements_have_the_same_results_on_both_planes(
    planes: Planes, layout: str, statements: list[str]
) -> None:
    compare_planes(planes, layout, statements)


def compare_planes(planes: Planes, layout: str, statements: list[str]) -> None:
    """Execute the statements on both planes; compare their results and the tables."""
    tables = planes.tables()
    for table in tables:
        planes.rows.rows(f"CREATE TABLE {table} {layout}")
        planes.rows.rows(f"INSERT INTO {table} (id, p, n) VALUES {_ROWS}")
    for statement in statements:
        answers = [
            plane.answer(statement.replace("{t}", table))
            for plane, table in zip(planes.both, tables, strict=True)
        ]
        if statement.startswith(
            ("OPTIMIZE", "REORG", "RESTORE")
        ):  # whose results contain sizes in bytes
            answers = [StatementResult(error=one.error) for one in answers]
        assert (statement, answers[1]) == (statement, answers[0])
        left = [planes.plain.answer(f"SELECT id, p, n FROM {table}").rows for table in tables]
        assert (statement, left[1]) == (statement, left[0])
        versions = [planes.version(table) for table in tables]
        assert (statement, versions[1]) == (statement, versions[0])
    seen = planes.spark.answer(f"SELECT id, p, n FROM {tables[1]}")
    assert seen == planes.plain.answer(f"SELECT id, p, n FROM {tables[1]}")


LEVELS = tuple(Level)
WINNERS = (
    "INSERT INTO {t} (id, p, n) VALUES (9, 'a', 1)",
    "INSERT INTO {t} (id, p, n) VALUES (1, 'd', 8)",
    "INSERT INTO {t} (id, p, n) SELECT id + 10, p, n FROM {t} WHERE id > 2",
    "UPDATE {t} SET n = 60 WHERE id = 1",
    "UPDATE {t} SET n = 1 WHERE id = 4",
    "DELETE FROM {t} WHERE id = 0",
    "DELETE FROM {t} WHERE p = 'c'",
    "OPTIMIZE {t}",
    "MERGE INTO {t} t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 5",
    "DELETE FROM {t}",
)


@_BOUNDED
@given(
    layout=st.sampled_from(programs.LAYOUTS[:3]),
    level=st.sampled_from(LEVELS),
    statements=st.lists(programs.shared, min_size=1, max_size=2),
    winner=st.sampled_from(WINNERS),
)
def test_concurrent_writers_get_the_same_verdict_on_both_planes(
    planes: Planes, layout: str, level: Level, statements: list[str], winner: str
) -> None:
    compare_verdicts(planes, layout, level, statements, winner)


def compare_verdicts(
    planes: Planes, layout: str, level: Level, statements: list[str], winner: str
) -> StatementResult:
    """Return the verdict on a transaction beside a winner, which must be the same on both
    planes.
    """
    told = f"{layout} {level} {statements} {winner}"
    tables = planes.tables()
    ends = []
    planes.at_level(level)
    for plane, table in zip(planes.both, tables, strict=True):
        planes.writer(f"CREATE TABLE {table} {layout}")
        planes.writer(f"INSERT INTO {table} (id, p, n) VALUES {_ROWS}")
        planes.writer(f"INSERT INTO {table} (id, p, n) VALUES (5, 'b', 6), (6, 'a', 60)")
        plane.answer("BEGIN")
        answers = [plane.answer(one.replace("{t}", table)) for one in statements]
        planes.writer(winner.replace("{t}", table))
        end = plane.answer("ROLLBACK" if any(one.error for one in answers) else "COMMIT")
        ends.append((end, [one.error for one in answers]))
    assert (told, ends[1]) == (told, ends[0])
    left = [planes.plain.answer(f"SELECT id, p, n FROM {table}").rows for table in tables]
    assert (told, left[1]) == (told, left[0])
    return ends[0][0]
