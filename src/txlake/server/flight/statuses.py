"""An error as a gRPC status, and its facts as JSON in the trailing metadata `txlake-error-bin`.

A conflict that a new try can win is ABORTED, one that every try meets FAILED_PRECONDITION; no other
error has these two.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import grpc
import msgspec

from txlake.errors import (
    Conflict,
    CorruptTable,
    Evidence,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
    UnsupportedFeature,
)
from txlake.server.api_errors import ApiError
from txlake.session.permission import NotPermitted
from txlake.session.views.json_values import json_value

DETAILS = "txlake-error-bin"
# A client of gRPC accepts 8 KiB of metadata if it sets nothing.
_MESSAGE_MAX, _DETAILS_MAX = 1_500, 3_000
_Code = grpc.StatusCode
_OF_API = {
    "NotAuthorizedException": _Code.UNAUTHENTICATED,
    "PermissionDeniedException": _Code.PERMISSION_DENIED,
    "NotFoundException": _Code.NOT_FOUND,
    "AlreadyExistsException": _Code.ALREADY_EXISTS,
    "ResourceExhaustedException": _Code.RESOURCE_EXHAUSTED,
    "TooManyRequestsException": _Code.RESOURCE_EXHAUSTED,
    "BadRequestException": _Code.INVALID_ARGUMENT,
    "InvalidParameterValueException": _Code.INVALID_ARGUMENT,
    "NotImplementedException": _Code.UNIMPLEMENTED,
}
_NOT_FOUND = re.compile(r"\[(?:TABLE_OR_VIEW|SCHEMA)_NOT_FOUND\]|there is no (?:table|database) ")
_EXISTS = re.compile(r"_ALREADY_EXISTS\b")


def status_of(error: Exception) -> tuple[grpc.StatusCode, str, bytes | None]:
    """Return the code, the message and the details of an error.

    One that is neither txlake's nor the API's is INTERNAL, and its text isn't sent.
    """
    if isinstance(error, ApiError):
        return _OF_API.get(error.kind, _Code.INTERNAL), str(error), None
    if not isinstance(error, TxlakeError):
        return _Code.INTERNAL, "the server failed; its log says why", None
    return _code_of(error), _cut(str(error)), _details_of(error)


def _code_of(error: TxlakeError) -> grpc.StatusCode:
    match error:
        case Conflict(evidence=Evidence(retry=False)):
            return _Code.FAILED_PRECONDITION
        case Conflict():
            return _Code.ABORTED
        case OutcomeUnknown():
            return _Code.UNKNOWN
        case Unavailable():
            return _Code.UNAVAILABLE
        case NotPermitted():
            return _Code.PERMISSION_DENIED
        case InvalidRequest() if _NOT_FOUND.search(str(error)):
            return _Code.NOT_FOUND
        case InvalidRequest() if _EXISTS.search(str(error)):
            return _Code.ALREADY_EXISTS
        case InvalidRequest():
            return _Code.INVALID_ARGUMENT
        case UnsupportedFeature():
            return _Code.UNIMPLEMENTED
        case CorruptTable():
            return _Code.DATA_LOSS
        case _:
            return _Code.INTERNAL


def _details_of(error: TxlakeError) -> bytes:
    """Return an error's class, numbers and evidence; of large evidence its samples are left out."""
    facts: dict[str, object] = {"class": type(error).__name__, "codes": list(error.codes)}
    if isinstance(error, Conflict) and error.evidence is not None:
        evidence = dataclasses.asdict(error.evidence)
        for omitted in ((), ("rows",), ("rows", "files"), ("rows", "files", "predicate")):
            kept = {key: value for key, value in evidence.items() if key not in omitted}
            content = _encoded({**facts, "retry": error.evidence.retry, "evidence": kept})
            if len(content) <= _DETAILS_MAX:
                return content
    return _encoded(facts)


def _encoded(facts: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(json_value(facts))


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]} ..."
