"""The works after LST-Bench: what queries of TPC-DS cost after refreshments, beside a compaction,
and of an older version.

Source of the patterns: Camacho-Rodriguez and others, LST-Bench (SIGMOD 2024): longevity,
concurrency, time travel. The works of a process go on with each other's tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import txlake
from bench.sources.retail import FACTS, Answers, Retail, retail
from bench.sources.tpch import Row, plain
from bench.stage import Stage, WrongAnswer, timed
from bench.suites.contention import compacted

_PASSES = 2
_ROUNDS = 5
_TOLERANCE = 1e-5
_FACT = re.compile(rf"\b({'|'.join(FACTS)})\b(?!\s*\.)")  # the table, not its column's first part


def longevity(stage: Stage, number: int) -> float:
    """By how much five rounds of refreshment have slowed the queries: the last to the first.

    The seconds of each round are among the details.
    """
    took = _rounds(stage, _ROUNDS)
    stage.kept["alone"] = took[-1]
    return took[-1] / took[0]


def maintained_longevity(stage: Stage, number: int) -> float:
    """The same over many rounds, with a round of maintenance between refreshment and queries.

    The seconds of each, and the files of the largest table, are among the details.
    """
    took = _rounds(stage, stage.sizes.retail_rounds, maintained=True)
    return took[-1] / took[0]


def _rounds(stage: Stage, rounds: int, *, maintained: bool = False) -> list[float]:
    """Seconds of the queries after each of the rounds."""
    source, engine = _source(stage), stage.engine
    tables = _attached(stage, source)
    _pass(stage, source, source.answers[0])  # what a first run costs isn't the table's age
    took = []
    for each in range(rounds):
        refreshed = sum(timed(step)[0] for step in _refreshment(stage, source, tables, each))
        details = {"refreshment s": refreshed}
        if maintained:
            details["maintenance s"] = timed(engine.maintain)[0]
            details["files"] = float(txlake.Log(str(tables[FACTS[0]])).snapshot().files().num_rows)
        took.append(_queries(stage, source, source.answers[each + 1]))
        details["queries s"] = took[-1]
        stage.details |= {f"round {each + 1}: {name}": value for name, value in details.items()}
    return took


def time_travel(stage: Stage, number: int) -> float:
    """Seconds of the queries of the tables as they were before the first refreshment."""
    source = _source(stage)
    _attached(stage, source)
    return _queries(stage, source, source.answers[0], of_first_version)


def of_first_version(query: str) -> str:
    """The query of the facts as they were at the beginning."""
    return _FACT.sub(r"\1 VERSION AS OF 0", query)


def beside_compaction(stage: Stage, number: int) -> float:
    """How much longer the queries take while another compacts the sales, again and again."""
    source = _source(stage)
    tables = _attached(stage, source)
    alone = stage.kept["alone"]
    assert isinstance(alone, float)
    with compacted(stage.engine.beside(), tables["store_sales"], True) as lost:
        seconds = _queries(stage, source, source.answers[_ROUNDS])
    stage.details["beside a compactor: queries s"] = seconds
    stage.details["beside a compactor: compactions aborted"] = float(len(lost))
    return seconds / alone


def _source(stage: Stage) -> Retail:
    return retail(stage.data, stage.sizes.retail_scale, stage.sizes.retail_rounds)


def _attached(stage: Stage, source: Retail) -> dict[str, Path]:
    def make() -> dict[str, Path]:
        tables = {
            name: stage.table(name, source.log(name), source.data(name)) for name in source.tables
        }
        stage.engine.attach(tables)
        return tables

    return stage.keep("retail", make)


def _refreshment(
    stage: Stage, source: Retail, tables: dict[str, Path], number: int
) -> list[Callable[[], None]]:
    """The statements of a round, each a transaction."""
    engine = stage.engine
    return [
        *(partial(engine.append, tables[name], [source.inserted(name, number)]) for name in FACTS),
        *(partial(engine.delete, tables[name], source.deleted[number][name]) for name in FACTS),
    ]


def _queries(
    stage: Stage,
    source: Retail,
    answers: Answers,
    written: Callable[[str], str] = str,
) -> float:
    """The sum over the queries of each one's fastest pass."""
    passes = [_pass(stage, source, answers, written) for _ in range(_PASSES)]
    return sum(min(each[name] for each in passes) for name in source.queries)


def _pass(
    stage: Stage, source: Retail, answers: Answers, written: Callable[[str], str] = str
) -> dict[str, float]:
    took = {}
    for name, text in source.queries.items():
        took[name], rows = timed(partial(stage.engine.query, written(text)))
        _expect_rows(stage, name, rows, answers[name])
    return took


def _expect_rows(stage: Stage, what: str, rows: list[Row], expected: list[list[object]]) -> None:
    """Raise WrongAnswer unless they are the same rows, in any order."""
    found = sorted((plain(row) for row in rows), key=_order)
    wanted = sorted(expected, key=_order)
    stage.expect(len(found), len(wanted), f"{what}: rows")
    for one, other in zip(found, wanted, strict=True):
        if len(one) != len(other) or not all(map(_same, one, other)):
            raise WrongAnswer(f"{stage.engine_name}: {what}: expected {other}, found {one}")


def _order(row: list[object]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """By the texts first, as numbers may differ in their last digits."""
    texts = tuple(str(value) for value in row if not isinstance(value, float))
    return texts, tuple(round(value, 2) for value in row if isinstance(value, float))


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return one == other
