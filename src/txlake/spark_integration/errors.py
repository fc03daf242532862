"""Errors at Spark's doors: txlake's and PySpark's at once, with the condition that Spark gave.

Owns also whether a thread is inside a door: what a lake asks of Spark there is Spark's to answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException

from txlake.errors import InvalidRequest, TxlakeError
from txlake.tables.errors import translation


class _Thread(threading.local):
    is_inside = False


_thread = _Thread()
_P = ParamSpec("_P")
_R = TypeVar("_R")


def as_spark(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates what a program calls: errors leave it as `tables.errors` has them.

    Where Spark found the fault in what it was asked by us, its condition stays
    (`TABLE_OR_VIEW_NOT_FOUND`): programs look for it. Until then the thread is inside a door.
    """

    @wraps(call)
    def translating(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        was_inside, _thread.is_inside = _thread.is_inside, True
        try:
            return call(*args, **kwargs)
        except PySparkException:
            raise
        except TxlakeError as error:
            translated = translation(_with_condition(error))
            if translated is error:
                raise
            raise translated.with_traceback(error.__traceback__) from error.__cause__
        finally:
            _thread.is_inside = was_inside

    return translating


def is_inside() -> bool:
    """Whether this thread is inside a door already."""
    return _thread.is_inside


def _with_condition(error: TxlakeError) -> TxlakeError:
    cause = error.__cause__
    condition = cause.getCondition() if isinstance(cause, PySparkException) else None
    # Which rule a row violates is ours to say; Spark was told to raise.
    if condition in (None, "USER_RAISED_EXCEPTION") or type(error) is not InvalidRequest:
        return error
    if "[DELTA_" in str(error):
        return error
    text = str(error).replace(f"[{condition}] ", "", 1)
    found = InvalidRequest(f"[{condition}] {text}")
    found.__dict__.update(error.__dict__)
    return found
