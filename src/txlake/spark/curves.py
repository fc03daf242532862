"""Numbers by which rows that are near in several columns stand near each other.

Owns the way from a table's columns to a place on a space-filling curve, as expressions that Spark
evaluates itself: no row passes through Python. A column's value becomes its bucket among boundaries
of a sample, and the buckets' bits become a place. The number only says where a row is to stand:
what is in the row doesn't hang on it.
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
    """A column by which rows are ordered, as what stands for it: a plain number, or a text."""

    key: Column
    type_name: str


def dimension(column: Column, data_type: DataType) -> Dimension:
    """The column as one of a curve's dimensions."""
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
    """A row's place on the Z-order curve: the bits of its buckets, interleaved."""
    bits = min(_BUCKET_BITS, _PLACE_BITS // len(dimensions))
    return _interleaved(_buckets(rows, dimensions, bits), bits)


def hilbert_place(rows: DataFrame, dimensions: Sequence[Dimension]) -> Column:
    """A row's place on the Hilbert curve, along which neighbours differ in one column alone.

    Over 2 to DIMENSIONS_MAX dimensions.
    """
    steps = walk(len(dimensions))
    point = _interleaved(_buckets(rows, dimensions, steps.bits), steps.bits)
    return _let(point, lambda one: _walked(one, steps, len(dimensions)))


def _walked(point: Column, steps: Walk, dimensions: int) -> Column:
    """`Walk.place`. What is carried from step to step is (place, state) as one number."""
    table = _numbers(steps.table, "int")
    shifts = range(steps.bits * dimensions - steps.step_bits, -1, -steps.step_bits)
    state_mask, step_mask = (1 << steps.state_bits) - 1, (1 << steps.step_bits) - 1

    def step(carried: Column, shift: Column) -> Column:
        part = F.call_function("shiftright", point, shift).bitwiseAND(F.lit(step_mask))
        state = F.shiftleft(carried.bitwiseAND(F.lit(state_mask)), steps.step_bits)
        found = F.get(table, state.bitwiseOR(part).cast("int")).cast("bigint")
        place = F.shiftright(carried, steps.state_bits)
        return F.shiftleft(place, steps.step_bits + steps.state_bits).bitwiseOR(found)

    start = F.lit(0).cast("bigint")
    walked = F.aggregate(_numbers(shifts, "int"), start, step)
    return F.shiftright(walked, steps.state_bits)


def _interleaved(buckets: Sequence[Column], bits: int) -> Column:
    """One number of the bits of all buckets: the highest first, of them the last bucket's."""
    number = F.lit(0).cast("bigint")
    for place, bucket in enumerate(buckets):
        shifts = [(bit, bit * len(buckets) + place) for bit in range(bits)]
        number = number.bitwiseOR(_let(bucket, _moving(shifts)))
    return number


def _moving(shifts: Sequence[tuple[int, int]]) -> Callable[[Column], Column]:
    """Takes bits of a number to other places, each from one to one."""

    def moved(number: Column) -> Column:
        found = F.lit(0).cast("bigint")
        for source, target in shifts:
            bit = F.shiftright(number, source).bitwiseAND(F.lit(1)).cast("bigint")
            found = found.bitwiseOR(F.shiftleft(bit, target))
        return found

    return moved


def _buckets(rows: DataFrame, dimensions: Sequence[Dimension], bits: int) -> list[Column]:
    """Each row's bucket in each dimension, of 2 ** bits that hold about as many rows each."""
    keys = [one.key.alias(f"__txlake_k{place}") for place, one in enumerate(dimensions)]
    sample = rows.select(*keys).orderBy(F.rand(_SAMPLE_SEED)).limit(_SAMPLE_ROWS).toArrow()
    return [
        _bucket(one, _boundaries(sample.column(place), 2**bits), bits)
        for place, one in enumerate(dimensions)
    ]


def _boundaries(values: pa.ChunkedArray, buckets: int) -> list[str]:
    """Values that divide the sample into so many parts, each once, as text."""
    found = values.drop_null().combine_chunks()
    ordered = found.take(pc.sort_indices(found))
    places = [len(ordered) * place // buckets for place in range(1, buckets)]
    if not len(ordered):
        return []
    return list(dict.fromkeys(_text(ordered[place].as_py()) for place in places))


def _text(value: object) -> str:
    return value.replace(_SEPARATOR, " ") if isinstance(value, str) else str(value)


def _bucket(one: Dimension, boundaries: list[str], bits: int) -> Column:
    """How many boundaries aren't greater than the value, found by halves; 0 for null."""
    if not boundaries:
        return F.lit(0)
    limits = F.split(F.lit(_SEPARATOR.join(boundaries)), _SEPARATOR).cast(f"array<{one.type_name}>")
    halves = _numbers([1 << bit for bit in reversed(range(bits))], "int")

    def found(key: Column) -> Column:
        def step(low: Column, half: Column) -> Column:
            higher = low + half
            return F.when(F.get(limits, higher - F.lit(1)) <= key, higher).otherwise(low)

        return F.aggregate(halves, F.lit(0), step)

    return _let(one.key, found)


def _numbers(numbers: Sequence[int] | range, type_name: str) -> Column:
    """Numbers as an array. Spark makes a constant of it; one literal each would be a long plan."""
    text = ",".join(map(str, numbers))
    return F.split(F.lit(text), ",").cast(f"array<{type_name}>")


def _let(value: Column, of: Callable[[Column], Column]) -> Column:
    """An expression of a value that is evaluated once, however often the expression names it."""
    return F.get(F.transform(F.array(value), of), F.lit(0))
