"""The meaning of obstore's errors for the caller, without the credentials in their texts."""

from __future__ import annotations

import re
from enum import Enum

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.redaction import redact

LIBRARY_ERRORS = (BaseError, OSError, ValueError, NotImplementedError)

_REASON_CHARACTERS_MAX = 600
_DEBUG_PART = "\n\nDebug source"
_STATUS = re.compile(r"status code: (\d{3})")
_TRANSIENT_STATUSES = {408, 425, 429}


class RequestOutcome(Enum):
    """Whether a failed request was carried out."""

    REFUSED = "refused"  # not carried out, and it won't be
    NOT_SENT = "not sent"  # not carried out; a later try may be
    LOST = "lost"  # perhaps carried out


def request_outcome(error: Exception) -> RequestOutcome:
    """Classify an error of obstore's; LOST in doubt, as the request may have been carried out."""
    text = str(error)
    status = http_status(error)
    if isinstance(
        error,
        PermissionDeniedError
        | UnauthenticatedError
        | NotSupportedError
        | NotImplementedError
        | InvalidPathError
        | UnknownConfigurationKeyError
        | ValueError
        | FileNotFoundError,
    ):
        return RequestOutcome.REFUSED
    if "Generic Config error" in text or "redirect without LOCATION" in text:
        return RequestOutcome.REFUSED
    if status in {501, 507} or (status is not None and 400 <= status < 500):
        # S3 also answers 400 when the body took too long, and 409 to a race.
        if status in _TRANSIENT_STATUSES or status == 409 or "RequestTimeout" in text:
            return RequestOutcome.LOST
        return RequestOutcome.REFUSED
    if "kind: Connect" in text:
        return RequestOutcome.NOT_SENT
    return RequestOutcome.LOST


def http_status(error: Exception) -> int | None:
    """Return the HTTP status that an error's text names; None without one."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def is_missing_object(error: Exception) -> bool:
    """Return whether an error says that the bucket exists but has no such object."""
    return isinstance(error, FileNotFoundError) and not _is_missing_bucket(error)


def translate_error(
    error: Exception, action: str, url: str, secrets: frozenset[str]
) -> TxlakeError:
    """Return txlake's error for one of obstore's, after a failed `action` on the object at `url`.

    It is an InvalidRequest with advice for a refused request, else Unavailable. Its text has no
    credentials.
    """
    begin = f"can't {action} {redact(url, secrets)}: {reason_of(error, secrets)}"
    if request_outcome(error) is RequestOutcome.REFUSED:
        return InvalidRequest(f"{begin}; {_advice(error)}")
    return Unavailable(f"{begin}; try again when the store answers")


def reason_of(error: Exception, secrets: frozenset[str]) -> str:
    """Return the error's text on one line of at most 600 characters, without credentials and the
    library's dump.
    """
    # Redact before cutting: half a secret is not recognised.
    text = redact(str(error).split(_DEBUG_PART)[0], secrets)
    return " ".join(text.split())[:_REASON_CHARACTERS_MAX]


def without_credentials(error: Exception, secrets: frozenset[str]) -> Exception:
    """Return `error` when it holds no credentials, else one of its type without them."""
    text = str(error)
    shown = redact(text, secrets)
    return error if shown == text else type(error)(shown)


def _advice(error: Exception) -> str:
    """Return what the caller can do about a refused request, as the end of a message."""
    text = str(error)
    if _is_missing_bucket(error):
        return "create the bucket, or correct its name"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return "check the credentials in storage_options and their permissions"
    if isinstance(error, UnknownConfigurationKeyError) or "Config error" in text:
        return "correct storage_options"
    if "redirect without LOCATION" in text:
        return "give the bucket's region in storage_options"
    if http_status(error) == 507:
        return "free space in the store"
    if http_status(error) == 501 or isinstance(error, NotImplementedError | NotSupportedError):
        return "the store is unsafe or incomplete: use one that has this operation"
    return "correct the location or storage_options"


def _is_missing_bucket(error: Exception) -> bool:
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "bucket does not exist" in text
