"""Errors of the API: a status, an error type of its list, and a message.

Owns the mapping of txlake's errors to these types, and the form that each API gives them. Source:
Unity Catalog's Delta API, "Errors"; for the older API, the errors of Unity Catalog's own server.
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
from txlake.session.permission import NotPermitted

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

_OLDER_CODES = {
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


class ApiError(Exception):
    """A request's error. `kind` is a key of STATUSES; the message is for the request's sender.

    `details`: further fields of the response's error.
    """

    def __init__(self, kind: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.details: dict[str, object] = {}
        self.status = STATUSES[kind] if status is None else status

    def response(self, *, is_older_api: bool) -> tuple[int, dict[str, object]]:
        """Return the response's status and body.

        `is_older_api`: in the form of the API before the Delta API.
        """
        if is_older_api:
            code = _OLDER_CODES[self.kind]
            error_info = [{"@type": _OLDER_DETAILS, "reason": code}]
            body = {"error_code": code, "message": str(self), "details": error_info}
            return _OLDER_STATUSES.get(self.kind, self.status), {**body}
        error = {"message": str(self), "type": self.kind, "code": self.status, **self.details}
        return self.status, {"error": error}


def api_error_of(error: TxlakeError) -> ApiError:
    """Return the API's error for one of txlake's errors, with the same message.

    Conflicts become 409, locks that aren't free 429, an unavailable catalog or store 503, an
    unknown outcome and damage 500, what the caller may not do 403, and requests that can't be
    carried out 400.
    """
    match error:
        case LockTimeout():
            return ApiError("TooManyRequestsException", str(error))
        case Unavailable():
            return ApiError("InternalServerErrorException", str(error), status=_UNAVAILABLE)
        case OutcomeUnknown():
            return ApiError("CommitStateUnknownException", str(error))
        case Conflict():
            return ApiError("CommitVersionConflictException", str(error))
        case NotPermitted():
            return ApiError("PermissionDeniedException", str(error))
        case InvalidRequest():
            return ApiError("InvalidParameterValueException", str(error))
        case UnsupportedFeature():
            return ApiError("UnsupportedTableFormatException", str(error))
        case CorruptTable():
            return ApiError("InternalServerErrorException", str(error))
        case _:
            return ApiError("InternalServerErrorException", str(error))
