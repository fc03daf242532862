"""Places on a space-filling curve, so that rows near in several columns are stored near each other.

Owns the way from a table's columns to a place on the curve, as expressions that Spark evaluates
itself: no row passes through Python. A column's value becomes its bucket among boundaries taken
from a sample, and the buckets' bits become a place. Places decide the order of rows only, never
their content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.protocol.types import DataType, Primitive
from txlake.spark.hilbert import Walk, walk

_SAMPLE_ROWS = 10_000
_SAMPLE_SEED = 7
_BUCKET_BITS = 8
_PLACE_BITS = 62
_TEXT_LENGTH = 64
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Dimension:
    """A column by which rows are ordered, and its sort key: a number or a text."""

    key: Column
    type_name: str


def dimension(column: Column, data_type: DataType) -> Dimension:
    """Return the column as a dimension of a curve, by a key of a number or text that sorts alike.

    Texts and bytes count by their first 64 characters or bytes, nested values by their JSON.
    """
    if not isinstance(data_type, Primitive):
        return Dimension(F.to_json(F.struct(column)), "string")
    name = data_type.name
    match name:
        case "byte" | "short" | "integer" | "long" | "boolean":
            return Dimension(column.cast("bigint"), "bigint")
        case "float" | "double":
            return Dimension(column.cast("double"), "double")
        case "date":
            return Dimension(F.unix_date(column).cast("bigint"), "bigint")
        case "timestamp" | "timestamp_ntz":
            return Dimension(F.unix_micros(column.cast("timestamp")), "bigint")
        case "binary":
            return Dimension(F.hex(F.substring(column, 1, _TEXT_LENGTH)), "string")
    if name.startswith("decimal"):
        return Dimension(column, name)
    if data_type.is_string:
        return Dimension(F.make_valid_utf8(F.substring(column, 1, _TEXT_LENGTH)), "string")
    return Dimension(F.to_json(F.struct(column)), "string")


def z_place(rows: DataFrame, dimensions: Sequence[Dimension]) -> Column:
    """Return a row's place on the Z-order curve: the interleaved bits of its buckets.

    Runs a Spark job that takes a sample of `rows`.
    """
    bits = min(_BUCKET_BITS, _PLACE_BITS // len(dimensions))
    return _interleaved(_buckets(rows, dimensions, bits), bits)


def hilbert_place(rows: DataFrame, dimensions: Sequence[Dimension]) -> Column:
    """Return a row's place on the Hilbert curve, where neighbours differ in one column only.

    Takes 2 to DIMENSIONS_MAX dimensions; raises KeyError for any other number. Runs a Spark job
    that takes a sample of `rows`.
    """
    steps = walk(len(dimensions))
    point = _interleaved(_buckets(rows, dimensions, steps.bits), steps.bits)
    return _let(point, lambda number: _walk_place(number, steps, len(dimensions)))


def _walk_place(point: Column, steps: Walk, dimensions: int) -> Column:
    """Return the place of a point as an expression; see `Walk.place`.

    A step carries (place, state), packed in one number, to the next.
    """
    table = _numbers(steps.table, "int")
    shifts = range(steps.bits * dimensions - steps.step_bits, -1, -steps.step_bits)
    state_mask, step_mask = (1 << steps.state_bits) - 1, (1 << steps.step_bits) - 1

    def step(carried: Column, shift: Column) -> Column:
        """Return (place, state), packed, after the step that takes the bits at `shift`."""
        point_bits = F.call_function("shiftright", point, shift).bitwiseAND(F.lit(step_mask))
        state = F.shiftleft(carried.bitwiseAND(F.lit(state_mask)), steps.step_bits)
        entry = F.get(table, state.bitwiseOR(point_bits).cast("int")).cast("bigint")
        place = F.shiftright(carried, steps.state_bits)
        return F.shiftleft(place, steps.step_bits + steps.state_bits).bitwiseOR(entry)

    start = F.lit(0).cast("bigint")
    walked = F.aggregate(_numbers(shifts, "int"), start, step)
    return F.shiftright(walked, steps.state_bits)


def _interleaved(buckets: Sequence[Column], bits: int) -> Column:
    """Return the bits of all buckets as one number: by level from the highest, within it the last
    bucket first.
    """
    number = F.lit(0).cast("bigint")
    for place, bucket in enumerate(buckets):
        shifts = [(bit, bit * len(buckets) + place) for bit in range(bits)]
        number = number.bitwiseOR(_let(bucket, _bit_mover(shifts)))
    return number


def _bit_mover(shifts: Sequence[tuple[int, int]]) -> Callable[[Column], Column]:
    """Return a function that moves bits of a number, each from a source to a target place."""

    def move(number: Column) -> Column:
        """Return the number with its bits moved; bits that no pair names are 0."""
        result = F.lit(0).cast("bigint")
        for source, target in shifts:
            bit = F.shiftright(number, source).bitwiseAND(F.lit(1)).cast("bigint")
            result = result.bitwiseOR(F.shiftleft(bit, target))
        return result

    return move


def _buckets(rows: DataFrame, dimensions: Sequence[Dimension], bits: int) -> list[Column]:
    """Return each row's bucket in each dimension, of 2 ** bits with about as many rows each.

    Runs a Spark job that takes a sample of 10,000 rows.
    """
    keys = [dimension.key.alias(f"__txlake_k{place}") for place, dimension in enumerate(dimensions)]
    sample = rows.select(*keys).orderBy(F.rand(_SAMPLE_SEED)).limit(_SAMPLE_ROWS).toArrow()
    return [
        _bucket(dimension, _boundaries(sample.column(place), 2**bits), bits)
        for place, dimension in enumerate(dimensions)
    ]


def _boundaries(values: pa.ChunkedArray, buckets: int) -> list[str]:
    """Return the distinct values, as text and ascending, that divide the sample into `buckets`
    equal parts.

    [] for a sample of nulls.
    """
    plain = values.drop_null().combine_chunks()
    ordered = plain.take(pc.sort_indices(plain))
    places = [len(ordered) * place // buckets for place in range(1, buckets)]
    if not len(ordered):
        return []
    return list(dict.fromkeys(_text(ordered[place].as_py()) for place in places))


def _text(value: object) -> str:
    return value.replace(_SEPARATOR, " ") if isinstance(value, str) else str(value)


def _bucket(dimension: Dimension, boundaries: list[str], bits: int) -> Column:
    """Return how many boundaries are at most the value, by binary search; 0 for null."""
    if not boundaries:
        return F.lit(0)
    limits = F.split(F.lit(_SEPARATOR.join(boundaries)), _SEPARATOR).cast(
        f"array<{dimension.type_name}>"
    )
    halves = _numbers([1 << bit for bit in reversed(range(bits))], "int")

    def search(key: Column) -> Column:
        """Return how many limits are at most the key; 0 for a null key."""

        def step(low: Column, half: Column) -> Column:
            higher = low + half
            return F.when(F.get(limits, higher - F.lit(1)) <= key, higher).otherwise(low)

        return F.aggregate(halves, F.lit(0), step)

    return _let(dimension.key, search)


def _numbers(numbers: Sequence[int] | range, type_name: str) -> Column:
    """Return numbers as an array. Spark folds it to a constant; literals would make a long plan."""
    text = ",".join(map(str, numbers))
    return F.split(F.lit(text), ",").cast(f"array<{type_name}>")


def _let(value: Column, of: Callable[[Column], Column]) -> Column:
    """Return `of(value)` as an expression that evaluates the value once, however often `of` uses
    it.
    """
    return F.get(F.transform(F.array(value), of), F.lit(0))
