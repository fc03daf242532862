"""Errors that are txlake's and PySpark's (or Python's) at once, as delta-spark's users catch them.

Owns the translation at the public methods of `tables`; below them, errors are `txlake.errors`.

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
    """The request can't be carried out as it is; nothing was written."""


class TextRefused(RequestRefused, ParseException):
    """A SQL text, a name or a type is not understood."""


class ArgumentTypeRefused(InvalidRequest, PySparkException, TypeError):
    """An argument has the wrong Python type."""


class ArgumentValueRefused(InvalidRequest, PySparkException, ValueError):
    """An argument is missing, or has an invalid value."""


class OperationUnsupported(UnsupportedFeature, UnsupportedOperationException):
    """txlake doesn't support what the request or its table needs."""


def raises_delta_spark_errors(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a public method so that it raises txlake's errors as the classes above.

    Errors that Spark raised pass through unchanged.
    """

    @wraps(call)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the method, and translate the TxlakeErrors that it raises."""
        try:
            return call(*args, **kwargs)
        except PySparkException:
            raise
        except TxlakeError as error:
            translated = translate(error)
            if translated is error:
                raise
            raise translated.with_traceback(error.__traceback__) from error.__cause__

    return wrapper


def translate(error: TxlakeError) -> TxlakeError:
    """Return the error to raise to the user, with the same message and attributes.

    An InvalidRequest becomes an AnalysisException too, an UnsupportedFeature an
    UnsupportedOperationException, a Conflict the class of `delta.exceptions`. Errors of PySpark's
    classes, and all others, are returned as they are.
    """
    match error:
        case PySparkException():
            return error
        case InvalidRequest():
            return _convert(RequestRefused, error)
        case UnsupportedFeature():
            return _convert(OperationUnsupported, error)
        case Conflict():
            return _convert(_conflict_class(type(error), _delta_spark_class(type(error))), error)
    return error


def raise_parse_error(error: TxlakeError) -> NoReturn:
    """Raise an InvalidRequest about a text as the ParseException that Spark would raise.

    Any other error is raised as it is.
    """
    if isinstance(error, InvalidRequest):
        raise _convert(TextRefused, error, "PARSE_SYNTAX_ERROR") from error.__cause__
    raise error


def refusal(condition: str, message: str) -> RequestRefused:
    """Return an error that is an InvalidRequest and an AnalysisException, with an error class.

    `condition` is one of Delta's or Spark's error classes.
    """
    return _convert(RequestRefused, InvalidRequest(f"[{condition}] {message}"))


def unsupported_error(condition: str, message: str) -> OperationUnsupported:
    """Return an error that is an UnsupportedFeature and an UnsupportedOperationException.

    `condition` is one of Delta's error classes.
    """
    return _convert(OperationUnsupported, UnsupportedFeature(f"[{condition}] {message}"))


_E = TypeVar("_E", bound=TxlakeError)


def _convert(kind: type[_E], error: TxlakeError, default_condition: str | None = None) -> _E:
    """Return the error as another class, with the condition in its text or the default one.

    The condition in brackets is taken out of the message.
    """
    text = str(error)
    match = _CONDITION.search(text)
    message, condition = text, default_condition
    if match is not None:
        message, condition = (
            text[: match.start()] + text[match.end() :],
            match[match.lastindex or 1],
        )
    new = kind.__new__(kind, text)
    assert isinstance(new, PySparkException)
    # Its own constructor would put the error numbers into the message once more.
    PySparkException.__init__(new, message, errorClass=condition, messageParameters={})
    new.__dict__.update(error.__dict__)
    return new


def _conflict_class(txlake_class: type[Conflict], delta_class: type[Exception]) -> type[Conflict]:
    """Return the class that is both of these; the same one each time."""
    combined = _conflict_classes.get((txlake_class, delta_class))
    if combined is None:
        combined = type(
            txlake_class.__name__, (txlake_class, delta_class), {"__doc__": txlake_class.__doc__}
        )
        _conflict_classes[txlake_class, delta_class] = combined
    return combined


def _delta_spark_class(txlake_class: type[Conflict]) -> type[Exception]:
    """Return delta-spark's class for a conflict; PySparkException unless its module is imported."""
    module = sys.modules.get("delta.exceptions")
    for name in (txlake_class.__name__, "DeltaConcurrentModificationException"):
        delta_class = getattr(module, name, None)
        if isinstance(delta_class, type) and issubclass(delta_class, PySparkException):
            return delta_class
    return PySparkException
