"""Rows of queries in a form that tests compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import txlake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """The rows as tuples, in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def query(
    asked: txlake.Lake | txlake.LakeSession | txlake.Transaction, text: str
) -> list[tuple[object, ...]]:
    """The rows of a query."""
    return rows(asked.sql(text))


def number(asked: txlake.Lake | txlake.LakeSession | txlake.Transaction, text: str) -> object:
    """The one value that a query gives."""
    return asked.sql(text).collect()[0][0]
