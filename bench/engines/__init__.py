"""The engines, each asked for the same things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.engines.base import Engine
from bench.engines.delta_rs import DeltaRs


def _raw_spark(scratch: Path) -> Engine:
    from bench.engines.spark import RawSpark

    return RawSpark(scratch)


def _delta_spark(scratch: Path) -> Engine:
    from bench.engines.spark import DeltaSpark

    return DeltaSpark(scratch)


def _ducklake(scratch: Path) -> Engine:
    raise NotImplementedError("DuckLake is asked for transactions alone: engines/transactions.py")


def _txlake(scratch: Path) -> Engine:
    from bench.engines.spark import Txlake

    return Txlake(scratch)


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "spark": _raw_spark,
    "delta-spark": _delta_spark,
    "delta-rs": DeltaRs,
    "ducklake": _ducklake,
    "txlake": _txlake,
}
"""By name, in the order of the table's columns; each is given an empty folder of its own."""

TITLES = {
    "spark": "raw Spark",
    "delta-spark": "Delta Spark",
    "delta-rs": "delta-rs",
    "ducklake": "DuckLake",
    "txlake": "txlake",
}
