"""TPC-H: the queries and the two refresh functions."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path

from bench.sources.tpch import TABLES, Tpch, checking_query, plain, tpch
from bench.stage import Stage, WrongAnswer, timed
from bench.tpch_queries import QUERIES

_CHANGED = (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
# Averages and shares are decimals of few digits to some engines, floats to others.
_TOLERANCE = 1e-5


def queries(stage: Stage, number: int) -> float:
    """The sum over the queries, each one's seconds in the details."""
    source = tpch(stage.data, stage.sizes.scale)
    _attached(stage, source)
    answers = source.answers()
    whole = 0.0
    for name, text in islice(QUERIES.items(), stage.sizes.queries):
        seconds, rows = timed(partial(stage.engine.query, text))
        _expect_rows(stage, name, [plain(row) for row in rows], answers[name])
        stage.details[name] = min(seconds, stage.details.get(name, seconds))
        whole += seconds
    return whole


def insert_orders(stage: Stage, number: int) -> float:
    """RF1: new orders and their lineitems, one transaction for an engine that has it, else two."""
    source, tables = _refreshed(stage)

    def insert() -> None:
        with stage.engine.as_one():
            for name, _ in _CHANGED:
                _insert(stage, source, tables, name, number)

    seconds, _ = timed(insert)
    for name, _ in _CHANGED:
        _expect_sums(stage, source, name, f"rf1-{name}-{number}", 1)
    return seconds


def delete_orders(stage: Stage, number: int) -> float:
    """RF2: orders by their keys and their lineitems, in the same way."""
    source, tables = _refreshed(stage)

    def delete() -> None:
        with stage.engine.as_one():
            for name, column in _CHANGED:
                _delete(stage, source, tables, name, column, number)

    seconds, _ = timed(delete)
    for name, _ in _CHANGED:
        _expect_sums(stage, source, name, f"rf2-{name}-{number}", -1)
    return seconds


def _refreshed(stage: Stage) -> tuple[Tpch, dict[str, Path]]:
    source = tpch(stage.data, stage.sizes.scale)
    return source, _attached(stage, source)


def _insert(stage: Stage, source: Tpch, tables: dict[str, Path], name: str, number: int) -> None:
    stage.engine.append(tables[name], [source.inserted(name, number)])


def _delete(
    stage: Stage, source: Tpch, tables: dict[str, Path], name: str, column: str, number: int
) -> None:
    stage.engine.delete_keys(tables[name], column, source.deleted(number))


def _attached(stage: Stage, source: Tpch) -> dict[str, Path]:
    def make() -> dict[str, Path]:
        tables = {name: stage.table(name, source.log(name), source.data(name)) for name in TABLES}
        stage.engine.attach(tables)
        return tables

    return stage.keep("tpch", make)


def _expect_sums(stage: Stage, source: Tpch, table: str, change: str, sign: int) -> None:
    sums = source.sums()
    name = f"sums of {table}"
    rows, cents = stage.keep(name, lambda: tuple(sums[table]))
    expected = (rows + sign * sums[change][0], cents + sign * sums[change][1])
    stage.kept[name] = expected
    ((found_rows, price),) = stage.engine.query(checking_query(table))
    stage.expect((found_rows, round(Decimal(str(price)) * 100)), expected, f"{table}, {change}")


def _expect_rows(
    stage: Stage, what: str, found: list[list[object]], expected: list[list[object]]
) -> None:
    if len(found) != len(expected):
        raise WrongAnswer(
            f"{stage.engine_name}: {what}: expected {len(expected)} rows, found {len(found)}"
        )
    for one, other in zip(found, expected, strict=True):
        if len(one) != len(other) or not all(map(_same, one, other)):
            raise WrongAnswer(f"{stage.engine_name}: {what}: expected {other}, found {one}")


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return one == other
