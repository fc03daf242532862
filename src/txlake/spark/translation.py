"""Spark's errors become txlake's, by what the caller does next.

Owns that table. What Spark refuses because of the statement or its data is an InvalidRequest; what
failed in the cluster is Unavailable.
"""

from __future__ import annotations

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    PySparkException,
)

from txlake.errors import InvalidRequest, TxlakeError, Unavailable

_OF_THE_STATEMENT = (
    AnalysisException,
    ParseException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
)


def translated(error: PySparkException) -> TxlakeError:
    """The error to raise from Spark's."""
    text = str(error).split("\n\nJVM stacktrace")[0].strip()
    if isinstance(error, _OF_THE_STATEMENT):
        return InvalidRequest(f"Spark refused the statement: {text}")
    return Unavailable(f"Spark could not run the statement: {text}")
