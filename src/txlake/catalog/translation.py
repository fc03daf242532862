"""What a database's errors mean for the caller: wait, or change something."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

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


def translated(error: SQLAlchemyError, catalog: str) -> TxlakeError:
    """The error to raise from one of the database's; `catalog` is its URL without a password."""
    cause = getattr(error, "orig", None) or error
    advice = _ADVICE.get(_kind(cause))
    if advice is not None:
        return InvalidRequest(f"catalog {catalog}: {cause}; {advice}")
    return Unavailable(f"catalog {catalog}: {cause}; try again")


def _kind(cause: BaseException) -> str:
    """SQLite's primary result code, without what extended ones (SQLITE_READONLY_DBMOVED) add."""
    name = getattr(cause, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])
