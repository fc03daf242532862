"""Timestamps and versions that a statement names as a text or as a constant expression.

A plain text is parsed here; any other text and every expression is computed by Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegralType, StringType, TimestampNTZType, TimestampType

from txlake.errors import InvalidRequest
from txlake.log.coercion import as_timestamp, instant_in_zone
from txlake.log.predicates import LocalTime
from txlake.log.time_zones import TimeZone
from txlake.protocol.times import micros_of
from txlake.sql.statements import ChangeRange, TimeTravel

_TIMES = (TimestampType, TimestampNTZType, DateType)
_OWN_COLUMN = "_txlake_row"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

GetSpark = Callable[[], SparkSession]
"""Returns the Spark session, and starts it if necessary."""


def timestamp_ms(travel: TimeTravel, zone: Callable[[], TimeZone], get_spark: GetSpark) -> int:
    """Return the time of a TIMESTAMP AS OF, in milliseconds since the epoch.

    `zone` returns the time zone of texts that name none. A plain text is parsed here; anything else
    starts Spark. Raises InvalidRequest for what is no timestamp, and for an expression that isn't
    constant.
    """
    text = travel.timestamp
    found = None if text is None else _plain_ms(text, zone)
    if found is None:
        shown = text if text is not None else str(travel.timestamp_expression)
        value = F.lit(text) if text is not None else F.expr(shown)
        frame = _constant(get_spark(), shown, F.unix_millis(value.try_cast("timestamp")))
        found = frame.collect()[0]["value"]
    if found is None:
        raise InvalidRequest(
            "[DELTA_TIMESTAMP_INVALID] The provided timestamp "
            f"('{text or travel.timestamp_expression}') cannot be converted to a valid timestamp; "
            "give one like '2026-01-31 12:00:00'"
        )
    return int(found)


def constant_range(requested: ChangeRange, get_spark: GetSpark) -> ChangeRange:
    """Return a range of changes whose ends are versions or times instead of expressions.

    A whole number is a version; a text, a date and a timestamp are a timestamp. Raises
    InvalidRequest for anything else, NULL among it, and for an expression that isn't constant.
    """
    last = requested.last
    return ChangeRange(
        _constant_end(requested.first, get_spark),
        None if last is None else _constant_end(last, get_spark),
    )


def _constant_end(travel: TimeTravel, get_spark: GetSpark) -> TimeTravel:
    """Return an end of a range with its expression evaluated by Spark; one without is returned as
    it is.

    Raises InvalidRequest for NULL, another type, a negative version, and an expression that isn't
    constant.
    """
    expression = travel.timestamp_expression
    if expression is None:
        return travel
    frame = _constant(get_spark(), expression, F.expr(expression))
    kind = frame.schema["value"].dataType
    if isinstance(kind, _TIMES):
        frame = frame.select(F.unix_millis(F.col("value").cast("timestamp")).alias("value"))
    value = frame.collect()[0]["value"]
    if value is None:
        raise InvalidRequest(
            f"[DELTA_CDC_READ_NULL_RANGE_BOUNDARY] {expression} is NULL: a range of changes begins "
            "and ends with a version or a timestamp"
        )
    if isinstance(kind, _TIMES):
        time = _EPOCH + datetime.timedelta(milliseconds=value)
        return TimeTravel(timestamp=time.isoformat())
    if isinstance(kind, IntegralType) and value >= 0:
        return TimeTravel(version=value)
    if isinstance(kind, StringType):
        return TimeTravel(timestamp=value)
    raise InvalidRequest(
        f"[DELTA_UNSUPPORTED_EXPRESSION] {expression} = {value} of the type {kind.simpleString()}: "
        "expected a version, which is a whole number, 0 or more, or a timestamp"
    )


def _plain_ms(text: str, zone: Callable[[], TimeZone]) -> int | None:
    """Return the milliseconds of a plain timestamp, rounded down; None for a text that Spark has to
    parse.
    """
    found = as_timestamp(text)
    if isinstance(found, LocalTime):
        found = instant_in_zone(found, zone())
    return None if found is None else micros_of(found) // 1000


def _constant(spark: SparkSession, expression: str, value: Column) -> DataFrame:
    """Return one row with a constant's value in the column `value`.

    The other column makes Spark refuse an aggregate. Raises InvalidRequest, naming `expression`,
    for one that isn't constant or not valid.
    """
    try:
        frame = spark.range(1).toDF(_OWN_COLUMN).select(_OWN_COLUMN, value.alias("value"))
        _ = frame.schema  # Spark Connect looks at it now
    except AnalysisException as error:
        raise InvalidRequest(
            f"[DELTA_CDC_NON_CONSTANT_ARGUMENT] {expression}: expected a version or a timestamp as "
            f"a constant, which names no column and no aggregate; Spark says: {_first_line(error)}"
        ) from error
    return frame


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
