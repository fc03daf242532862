"""Errors of the Spark integration: of txlake's and PySpark's classes, with Spark's error condition.

Owns also whether a thread is inside an overridden call: calls to Spark from there go to Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException

from txlake.errors import InvalidRequest, TxlakeError
from txlake.lake.tables.errors import translate


class _Thread(threading.local):
    """Whether this thread is inside an overridden call."""

    is_in_call = False


_thread = _Thread()
_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_spark_errors(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a method that programs call: translate its errors as `lake.tables.errors` does.

    An error that Spark raised to txlake keeps its condition (`TABLE_OR_VIEW_NOT_FOUND`), since
    programs look for it. During the call `is_in_call` is true for the thread.
    """

    @wraps(call)
    def translating(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the method, and translate the TxlakeErrors that it raises."""
        was_in_call, _thread.is_in_call = _thread.is_in_call, True
        try:
            return call(*args, **kwargs)
        except PySparkException:
            raise
        except TxlakeError as error:
            translated = translate(_with_condition(error))
            if translated is error:
                raise
            raise translated.with_traceback(error.__traceback__) from error.__cause__
        finally:
            _thread.is_in_call = was_in_call

    return translating


def is_in_call() -> bool:
    """Return whether this thread is inside an overridden call already."""
    return _thread.is_in_call


def _with_condition(error: TxlakeError) -> TxlakeError:
    """Return the error with its cause's condition in brackets, if Spark raised the cause.

    Only an InvalidRequest without a condition of Delta's is changed.
    """
    cause = error.__cause__
    condition = cause.getCondition() if isinstance(cause, PySparkException) else None
    # USER_RAISED_EXCEPTION comes from txlake's own row checks, whose message names the rule.
    if condition in (None, "USER_RAISED_EXCEPTION") or type(error) is not InvalidRequest:
        return error
    if "[DELTA_" in str(error):
        return error
    text = str(error).replace(f"[{condition}] ", "", 1)
    translated = InvalidRequest(f"[{condition}] {text}")
    translated.__dict__.update(error.__dict__)
    return translated
