"""Disjunctions of ranges of one column, evaluated at once for all files.

A MERGE reads its target by up to 64 ranges of a key. Owns recognizing such a disjunction, and which
files have a value within one of its ranges; evaluated one by one, its comparisons cost more than
decoding the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlake.log.bounds import ColumnBounds
from txlake.log.predicate_nodes import (
    And,
    ColumnPath,
    Comparison,
    LiteralValue,
    Operator,
    Predicate,
)
from txlake.protocol.lazy_stats import Mask
from txlake.protocol.types import Primitive

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_LONGS = range(-(2**63), 2**63)
# For fewer, their comparisons one by one are as fast.
_RANGES_MIN = 4


@dataclass(frozen=True, slots=True)
class RangeList:
    """Ascending ranges of a column that don't overlap, whose ends belong to them."""

    column: ColumnPath
    lows: Sequence[LiteralValue]
    highs: Sequence[LiteralValue]

    def within(self, bounds: ColumnBounds) -> tuple[Mask, Mask] | None:
        """Return for each file whether a value between the bounds may be in one of the ranges, and
        whether one may be outside of them all.

        Unknown bounds allow both. None unless column and ends are all integers, or all dates.
        """
        ends = [*self.lows, *self.highs]
        if not isinstance(bounds.type, Primitive) or not _are_of(bounds.type.name, ends):
            return None
        numbers = _numbers(pa.array(ends, bounds.arrow_type))
        lows, highs = numbers[: len(self.lows)], numbers[len(self.lows) :]
        if np.any(lows > highs) or np.any(highs[:-1] >= lows[1:]):
            return None
        lower, upper = _numbers(bounds.lower), _numbers(bounds.upper)
        has_lower, has_upper = (
            each.is_valid().to_numpy(zero_copy_only=False) for each in (bounds.lower, bounds.upper)
        )
        # The first range that ends at the lower bound or later, and the last that begins at it or
        # earlier.
        first = np.where(has_lower, np.searchsorted(highs, lower, "left"), 0)
        last = np.searchsorted(lows, lower, "right") - 1
        begins = ~has_upper | (lows[np.minimum(first, len(lows) - 1)] <= upper)
        ends_later = has_lower & has_upper & (last >= 0) & (upper <= highs[np.maximum(last, 0)])
        return (first < len(lows)) & begins, ~ends_later


def range_list(parts: Sequence[Predicate]) -> RangeList | None:
    """Return the ranges whose disjunction the parts are; None for other parts, and for few."""
    if len(parts) < _RANGES_MIN:
        return None
    ranges = list(map(_range, parts))
    columns = {None if one is None else one[0] for one in ranges}
    if len(columns) != 1 or None in columns:
        return None
    known = [one for one in ranges if one is not None]
    return RangeList(known[0][0], [low for _, low, _ in known], [high for _, _, high in known])


def _range(part: Predicate) -> tuple[ColumnPath, LiteralValue, LiteralValue] | None:
    """Return the column and the ends of `column >= low AND column <= high`; None for another
    predicate.
    """
    match part:
        case And(
            (
                Comparison(column, Operator.GREATER_OR_EQUAL, low),
                Comparison(same, Operator.LESS_OR_EQUAL, high),
            )
        ) if column == same:
            return column, low, high
    return None


def _are_of(name: str, values: Sequence[LiteralValue]) -> bool:
    """Return whether all values are integers that fit into 64 bits, for an integer type's name, or
    dates, for `date`.
    """
    if name in _INTEGERS:
        return all(type(value) is int and value in _LONGS for value in values)
    return name == "date" and all(type(value) is date for value in values)


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers or dates as int64, 0 for null."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    numbers: npt.NDArray[np.int64] = (
        values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return numbers
