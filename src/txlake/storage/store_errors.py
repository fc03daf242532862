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
# S3 answers 200 to a request to delete many objects, with a code for each that it didn't delete.
_DELETE_DENIED = "(code: AccessDenied)"
# obstore names all paths of a request to delete many, up to a thousand.
_PATHS = re.compile(r"to complete for path .*?: (?=Error performing)")

# What the library's dump says of a request that got no answer, which its text leaves out.
_UNANSWERED = (
    ("kind: Timeout", "timed out, see the storage option timeout"),
    ("kind: Connect", "no connection, see the endpoint in storage_options"),
    ("IncompleteMessage", "the connection was closed without an answer"),
)
# What the caller can do, by a word in the store's answer: S3's, Google's and Azure's error codes.
_LIMITED = "the store limits the rate of requests: wait, then try again with fewer at a time"
_ADVICE_BY_CODE = (
    (
        ("ExpiredToken", "TokenRefreshRequired", "Signature not valid in the specified time frame"),
        "the credentials have expired: connect again with new ones in storage_options",
    ),
    (
        ("RequestTimeTooSkewed",),
        "this machine's clock and the store's are too far apart: set this machine's",
    ),
    (
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthenticationFailed"),
        "correct the credentials in storage_options",
    ),
    (
        ("SlowDown", "ServerBusy", "rateLimitExceeded", "TooManyRequests"),
        _LIMITED,
    ),
)
# obstore's text for an http:// endpoint without its option, about which it says no more.
_NO_HTTP = "HTTP error: builder error"
_CONFIGURATION = ("Generic Config error", "redirect without LOCATION", _NO_HTTP)
_PERMISSION = {
    "read": "read objects (s3:GetObject on S3)",
    "write": "write objects (s3:PutObject on S3)",
    "delete": "delete objects (s3:DeleteObject on S3)",
    "list": "list the bucket (s3:ListBucket on S3)",
}


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
    if any(each in text for each in (*_CONFIGURATION, _DELETE_DENIED)):
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
    advice = _advice_on_code(str(error)) or _advice_on_limit(error)
    if request_outcome(error) is RequestOutcome.REFUSED:
        return InvalidRequest(f"{begin}; {advice or _advice(error, action)}")
    return Unavailable(f"{begin}; {advice or 'try again when the store answers'}")


def reason_of(error: Exception, secrets: frozenset[str]) -> str:
    """Return the error's text on one line of at most 700 characters, without credentials, the
    library's dump, and the list of a request's paths.
    """
    # Redact before cutting: half a secret is not recognised.
    text, _, dump = str(error).partition(_DEBUG_PART)
    reason = " ".join(redact(_PATHS.sub("", text), secrets).split())[:_REASON_CHARACTERS_MAX]
    details = [detail for sign, detail in _UNANSWERED if sign in dump]
    return f"{reason} ({details[0]})" if details else reason


def without_credentials(error: Exception, secrets: frozenset[str]) -> Exception:
    """Return `error` when it holds no credentials, else one of its type without them."""
    text = str(error)
    shown = redact(text, secrets)
    return error if shown == text else type(error)(shown)


def _advice_on_code(text: str) -> str | None:
    """Return what the caller can do about an error code in a store's answer; None without one."""
    for codes, advice in _ADVICE_BY_CODE:
        if any(code in text for code in codes):
            return advice
    return None


def _advice_on_limit(error: Exception) -> str | None:
    """Return what the caller can do about a status that limits requests, as an answer without a
    body has no code; None for another status.
    """
    return _LIMITED if http_status(error) in {429, 503} else None


def _advice(error: Exception, action: str) -> str:
    """Return what the caller can do about a refused request, as the end of a message."""
    text = str(error)
    is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if _is_missing_bucket(error):
        return "create the bucket, or correct its name"
    if is_denied or http_status(error) in {401, 403} or _DELETE_DENIED in text:
        return f"check the credentials in storage_options, and that they may {_PERMISSION[action]}"
    if isinstance(error, UnknownConfigurationKeyError) or "Config error" in text:
        return "correct storage_options"
    if _NO_HTTP in text:
        return "an endpoint with http:// needs the storage option allow_http"
    if "redirect without LOCATION" in text:
        return "give the bucket's region in storage_options"
    if http_status(error) == 507:
        return "free space in the store"
    if http_status(error) == 501 or isinstance(error, NotImplementedError | NotSupportedError):
        return "the store is unsafe or incomplete: use one that has this operation"
    if http_status(error) == 400:
        return "correct the location or storage_options, whose credentials may have expired"
    return "correct the location or storage_options"


def _is_missing_bucket(error: Exception) -> bool:
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "bucket does not exist" in text
