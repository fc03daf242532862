"""Errors as delta-spark's users catch them: ours, and PySpark's or Python's own at the same time.

Owns the translation at the edge of `tables`. Below it, errors are those of `txlake.errors` alone.

    InvalidRequest      also AnalysisException; where a text or an argument is at fault, also
                        ParseException, TypeError or ValueError
    UnsupportedFeature  also UnsupportedOperationException
    Conflict            also PySparkException, and the class of the same name in `delta.exceptions`
                        where the program has imported it

A message with an error class in brackets, `[DELTA_MISSING_DELTA_TABLE] ...`, behind the table's
name or at its end, gives that class as `getCondition()`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from txlake.errors import Conflict, InvalidRequest, TxlakeError, UnsupportedFeature

_P = ParamSpec("_P")
_R = TypeVar("_R")

_conflict_classes: dict[tuple[type[Conflict], type[Exception]], type[Conflict]] = {}
_CONDITION = re.compile(
    r"^\[([A-Z][A-Z0-9_.]+)\] |\[(DELTA_[A-Z0-9_.]+)\] | \[(DELTA_[A-Z0-9_.]+)\]$"
)


class RequestRefused(InvalidRequest, AnalysisException):
    """The request can't be carried out as it stands; nothing was written."""


class TextRefused(RequestRefused, ParseException):
    """A SQL text, a name or a type is not understood."""


class ArgumentTypeRefused(InvalidRequest, PySparkException, TypeError):
    """An argument has the wrong Python type."""


class ArgumentValueRefused(InvalidRequest, PySparkException, ValueError):
    """An argument is missing, or has a value that can't be."""


class OperationUnsupported(UnsupportedFeature, UnsupportedOperationException):
    """txlake doesn't have what the request or its table needs."""


def as_delta_spark(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a public method: errors of txlake leave it as the classes above.

    Errors that Spark raised go through as they are.
    """

    @wraps(call)
    def translating(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except PySparkException:
            raise
        except TxlakeError as error:
            translated = translation(error)
            if translated is error:
                raise
            raise translated.with_traceback(error.__traceback__) from error.__cause__

    return translating


def translation(error: TxlakeError) -> TxlakeError:
    """The error that leaves the edge in this one's place, with the same message and attributes."""
    match error:
        case PySparkException():
            return error
        case InvalidRequest():
            return _as(RequestRefused, error)
        case UnsupportedFeature():
            return _as(OperationUnsupported, error)
        case Conflict():
            return _as(_conflict_class(type(error), _delta_spark_class(type(error))), error)
    return error


def refuse_text(error: TxlakeError) -> NoReturn:
    """Raises an error about a text as the parse error that Spark would raise."""
    if isinstance(error, InvalidRequest):
        raise _as(TextRefused, error, "PARSE_SYNTAX_ERROR") from error.__cause__
    raise error


def refused(condition: str, message: str) -> RequestRefused:
    """An error with one of Delta's or Spark's error classes."""
    return _as(RequestRefused, InvalidRequest(f"[{condition}] {message}"))


def unsupported(condition: str, message: str) -> OperationUnsupported:
    """An error about what txlake doesn't have, with one of Delta's error classes."""
    return _as(OperationUnsupported, UnsupportedFeature(f"[{condition}] {message}"))


_E = TypeVar("_E", bound=TxlakeError)


def _as(kind: type[_E], error: TxlakeError, otherwise: str | None = None) -> _E:
    """The error as one of this kind, with the condition in its text, or the other one."""
    text = str(error)
    found = _CONDITION.search(text)
    message, condition = text, otherwise
    if found is not None:
        message, condition = (
            text[: found.start()] + text[found.end() :],
            found[found.lastindex or 1],
        )
    new = kind.__new__(kind, text)
    assert isinstance(new, PySparkException)
    # Its own constructor would put the error numbers into the message once more.
    PySparkException.__init__(new, message, errorClass=condition, messageParameters={})
    new.__dict__.update(error.__dict__)
    return new


def _conflict_class(ours: type[Conflict], theirs: type[Exception]) -> type[Conflict]:
    found = _conflict_classes.get((ours, theirs))
    if found is None:
        found = type(ours.__name__, (ours, theirs), {"__doc__": ours.__doc__})
        _conflict_classes[ours, theirs] = found
    return found


def _delta_spark_class(ours: type[Conflict]) -> type[Exception]:
    """delta-spark's class for a conflict; a program that can catch it has imported its module."""
    module = sys.modules.get("delta.exceptions")
    for name in (ours.__name__, "DeltaConcurrentModificationException"):
        theirs = getattr(module, name, None)
        if isinstance(theirs, type) and issubclass(theirs, PySparkException):
            return theirs
    return PySparkException
