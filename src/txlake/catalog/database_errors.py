"""Translate a database's errors into the caller's next step: try again, or change something."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from txlake.errors import InvalidRequest, TxlakeError, Unavailable

# SQLite's result codes for what waiting doesn't mend.
_ADVICE = {
    "SQLITE_CANTOPEN": "give the path of a file in a folder that exists and may be written",
    "SQLITE_READONLY": "give this user the permission to write it, or use another place",
    "SQLITE_PERM": "give this user the permission to write it, or use another place",
    "SQLITE_NOTADB": "the file is something else: give another path",
    "SQLITE_FULL": "free space on the disk and try again",
    "SQLITE_CORRUPT": "the file is damaged: restore it",
}
# PostgreSQL's, where a statement met them.
_STATE_ADVICE = {
    "25006": "the server doesn't accept writes: give the address of the primary",
    "42501": "give this user the permission, or connect as another",
}
# Parameters of a URL that hold secrets.
_SECRETS = ("password", "sslpassword")


def display_url(url: sa.URL) -> str:
    """Return a URL without its secrets."""
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=True)


def translate_error(error: SQLAlchemyError, url: sa.URL) -> TxlakeError:
    """Return the error to raise for a database's error, without the secrets of its URL.

    InvalidRequest for an error that waiting doesn't mend, such as a full disk, a missing permission
    or a value that doesn't fit; Unavailable for any other.
    """
    cause = getattr(error, "orig", None) or error
    message = " ".join(str(cause).split())
    message = f"catalog {display_url(url)}: {_without_secrets(message, url)}"
    advice = _ADVICE.get(_kind(cause)) or _STATE_ADVICE.get(getattr(cause, "sqlstate", None) or "")
    if advice is not None:
        return InvalidRequest(f"{message}; {advice}")
    if isinstance(error, DataError | IntegrityError):
        return InvalidRequest(f"{message}; use a value that the catalog can hold")
    return Unavailable(f"{message}; try again")


def _without_secrets(message: str, url: sa.URL) -> str:
    """Return the message with `***` for each secret of the URL."""
    secrets = [url.password, *(url.query.get(name) for name in _SECRETS)]
    for secret in secrets:
        if secret:
            message = message.replace(str(secret), "***")
    return message


def _kind(cause: BaseException) -> str:
    """Return the name of SQLite's primary result code, such as SQLITE_READONLY also for
    SQLITE_READONLY_DBMOVED; empty for an error of another database.
    """
    name = getattr(cause, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])
