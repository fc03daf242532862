"""The errors of PEP 249, and what each error of txlake becomes.

    Exception
    ├── Warning
    └── Error
        ├── InterfaceError            the connection or cursor is closed, or has no rows
        └── DatabaseError
            ├── DataError             a value that can't be: out of range, divided by zero
            ├── OperationalError      Conflict, Unavailable, OutcomeUnknown
            ├── IntegrityError        NOT NULL, CHECK
            ├── InternalError         CorruptTable
            ├── ProgrammingError      InvalidRequest
            └── NotSupportedError     UnsupportedFeature; what can't be part of a transaction

`__cause__` is txlake's error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from txlake.errors import (
    Conflict,
    CorruptTable,
    Evidence,
    InvalidRequest,
    TxlakeError,
    UnsupportedFeature,
)

_ALONE = "can't run in a transaction"
_FAILED_BEFORE = "was rolled back because a statement failed ("
_INTEGRITY = re.compile(
    r"\[(?:DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT_WITH_VALUES|NOT_NULL_\w+)"
)
_DATA = re.compile(
    r"\[(?:DELTA_EXCEED_CHAR_VARCHAR_LIMIT|EXCEED_LIMIT_LENGTH|DIVIDE_BY_ZERO|\w+_OVERFLOW"
    r"|CAST_INVALID_INPUT|CANNOT_PARSE_\w+|CONVERSION_INVALID_INPUT|INVALID_ARRAY_INDEX\w*"
    r"|NUMERIC_VALUE_OUT_OF_RANGE)\b"
)
"""Spark's conditions of the classes 22 and 23 of SQLSTATE, and Delta's."""


class Warning(Exception):
    """A warning of PEP 249. txlake raises none."""


class Error(Exception):
    """The root of all errors of the driver.

    Attributes:
        evidence: of a conflict, why this transaction lost; None for any other error.
        codes: the numbers that other systems give this error.
    """

    evidence: Evidence | None = None
    codes: tuple[int, ...] = ()

    @property
    def retry(self) -> bool:
        """Whether running the whole transaction again can succeed, because it lost a conflict."""
        return self.evidence is not None and self.evidence.retry


class InterfaceError(Error):
    """The driver was used wrongly: what is closed, or has no rows, was asked for some."""


class DatabaseError(Error):
    """The root of the errors of the lake."""


class DataError(DatabaseError):
    """A value can't be computed or stored: out of range, divided by zero, too long."""


class OperationalError(DatabaseError):
    """A conflict, a lock that isn't granted, a store or server that can't be reached, or a commit
    of which nobody knows whether it happened.
    """


class IntegrityError(DatabaseError):
    """A row breaks NOT NULL or a CHECK constraint."""


class InternalError(DatabaseError):
    """A table's log or one of its files is damaged."""


class ProgrammingError(DatabaseError):
    """The statement can't be carried out as it stands: change it."""


class NotSupportedError(DatabaseError):
    """A table feature that txlake doesn't have, or a statement that can't be in a transaction."""


def error_of(error: TxlakeError) -> Error:
    """Return PEP 249's error for one of txlake's, with its message, evidence and codes."""
    made = _kind_of(error)(_message_of(error))
    made.codes = error.codes
    if isinstance(error, Conflict):
        made.evidence = error.evidence
    return made


def _kind_of(error: TxlakeError) -> type[Error]:
    text = str(error)
    match error:
        case UnsupportedFeature():
            return NotSupportedError
        case CorruptTable():
            return InternalError
        case InvalidRequest() if _FAILED_BEFORE in text:
            return ProgrammingError
        case InvalidRequest() if _INTEGRITY.search(text):
            return IntegrityError
        case InvalidRequest() if _DATA.search(text):
            return DataError
        case InvalidRequest() if _ALONE in text:
            return NotSupportedError
        case InvalidRequest():
            return ProgrammingError
        case _:
            return OperationalError


def _message_of(error: TxlakeError) -> str:
    hint = "; with con.autocommit = True it runs outside of one"
    return f"{error}{hint if isinstance(error, InvalidRequest) and _ALONE in str(error) else ''}"


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise txlake's errors of the block as PEP 249's, caused by them."""
    try:
        yield
    except TxlakeError as error:
        raise error_of(error) from error
