"""Errors as the API names them: a status, a type of its list, and a message.

Owns which of txlake's errors is which of them, and the form that each API gives them. Source: Unity
Catalog's Delta API, "Errors"; the errors of its older API as Unity Catalog's own server answers.
"""

from __future__ import annotations

from txlake.errors import (
    Conflict,
    CorruptTable,
    InvalidRequest,
    LockTimeout,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
    UnsupportedFeature,
)

STATUSES = {
    "BadRequestException": 400,
    "InvalidParameterValueException": 400,
    "UnsupportedTableFormatException": 400,
    "NotAuthorizedException": 401,
    "PermissionDeniedException": 403,
    "NotFoundException": 404,
    "NoSuchCatalogException": 404,
    "NoSuchSchemaException": 404,
    "NoSuchTableException": 404,
    "AlreadyExistsException": 409,
    "CommitVersionConflictException": 409,
    "UpdateRequirementConflictException": 409,
    "ResourceExhaustedException": 429,
    "TooManyRequestsException": 429,
    "CommitStateUnknownException": 500,
    "InternalServerErrorException": 500,
    "NotImplementedException": 501,
}
"""The types of errors, with the status of each."""

_UNAVAILABLE = 503

_OLDER = {
    "BadRequestException": "INVALID_ARGUMENT",
    "InvalidParameterValueException": "INVALID_ARGUMENT",
    "UnsupportedTableFormatException": "UNSUPPORTED_TABLE_FORMAT",
    "NotAuthorizedException": "UNAUTHENTICATED",
    "PermissionDeniedException": "PERMISSION_DENIED",
    "NotFoundException": "NOT_FOUND",
    "NoSuchCatalogException": "CATALOG_NOT_FOUND",
    "NoSuchSchemaException": "SCHEMA_NOT_FOUND",
    "NoSuchTableException": "TABLE_NOT_FOUND",
    "AlreadyExistsException": "SCHEMA_ALREADY_EXISTS",  # tables are made by the Delta API
    "CommitVersionConflictException": "ABORTED",
    "UpdateRequirementConflictException": "UPDATE_REQUIREMENT_CONFLICT",
    "ResourceExhaustedException": "RESOURCE_EXHAUSTED",
    "TooManyRequestsException": "RESOURCE_EXHAUSTED",
    "CommitStateUnknownException": "COMMIT_STATE_UNKNOWN",
    "InternalServerErrorException": "INTERNAL",
    "NotImplementedException": "UNIMPLEMENTED",
}
_OLDER_STATUSES = {"AlreadyExistsException": 400}
_OLDER_DETAILS = "type.googleapis.com/google.rpc.ErrorInfo"


class Failure(Exception):
    """What a request failed with. `kind` is one of STATUSES; the message is for its sender.

    `more`: what else the answer's error says.
    """

    def __init__(self, kind: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.more: dict[str, object] = {}
        self.status = STATUSES[kind] if status is None else status

    def answer(self, *, older: bool) -> tuple[int, dict[str, object]]:
        """The answer's status and body. `older`: as the API before the Delta API has them."""
        if older:
            code = _OLDER[self.kind]
            details = [{"@type": _OLDER_DETAILS, "reason": code}]
            body = {"error_code": code, "message": str(self), "details": details}
            return _OLDER_STATUSES.get(self.kind, self.status), {**body}
        error = {"message": str(self), "type": self.kind, "code": self.status, **self.more}
        return self.status, {"error": error}


def failure_of(error: TxlakeError) -> Failure:
    """The failure that stands for an error of the lake's."""
    match error:
        case LockTimeout():
            return Failure("TooManyRequestsException", str(error))
        case Unavailable():
            return Failure("InternalServerErrorException", str(error), status=_UNAVAILABLE)
        case OutcomeUnknown():
            return Failure("CommitStateUnknownException", str(error))
        case Conflict():
            return Failure("CommitVersionConflictException", str(error))
        case InvalidRequest():
            return Failure("InvalidParameterValueException", str(error))
        case UnsupportedFeature():
            return Failure("UnsupportedTableFormatException", str(error))
        case CorruptTable():
            return Failure("InternalServerErrorException", str(error))
        case _:
            return Failure("InternalServerErrorException", str(error))
