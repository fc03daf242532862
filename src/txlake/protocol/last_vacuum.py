"""`_last_vacuum_info`: how far the last VACUUM came, so that VACUUM LITE goes on from there.

Delta Spark writes and reads the file too (VacuumCommand.scala, `LastVacuumInfo`), and ignores the
key that is txlake's own. Like a hint it is never needed: without it VACUUM lists the table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from txlake.protocol.file_names import LOG_FOLDER

LAST_VACUUM_PATH = f"{LOG_FOLDER}/_last_vacuum_info"
_VERSION = "latestCommitVersionOutsideOfRetentionWindow"
_FULL_MS = "txlake.fullVacuumMs"


@dataclass(frozen=True, slots=True)
class LastVacuum:
    """What the last VACUUM of a table did.

    Attributes:
        version: the files that commits removed up to this version are deleted; None if unknown.
        full_ms: when the table's files were last listed by a VACUUM, in milliseconds since the
            epoch; None if unknown.
    """

    version: int | None = None
    full_ms: int | None = None

    def then(self, later: LastVacuum) -> LastVacuum:
        """Return what is known after a later VACUUM; neither value ever goes back."""
        return LastVacuum(
            version=_latest(self.version, later.version),
            full_ms=_latest(self.full_ms, later.full_ms),
        )

    def possible(self, newest: int | None, now_ms: int) -> LastVacuum:
        """Return what may be true of a table with this newest version, None if it isn't known, at
        this time.

        A table that was restored from a copy may have a file of later versions, and the clock of a
        host may be wrong: believed, nothing would be deleted until then.
        """
        return LastVacuum(_at_most(self.version, newest), _at_most(self.full_ms, now_ms))


def _at_most(value: int | None, limit: int | None) -> int | None:
    """Return the value; None for one above the limit."""
    return None if value is not None and limit is not None and value > limit else value


def _latest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def read_last_vacuum(data: bytes) -> LastVacuum:
    """Return the content of the file; nothing is known by one that can't be read."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return LastVacuum()
    if not isinstance(fields, dict):
        return LastVacuum()
    return LastVacuum(*(_number(fields.get(key)) for key in (_VERSION, _FULL_MS)))


def _number(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def write_last_vacuum(last: LastVacuum) -> bytes:
    """Return the file's content."""
    fields = {_VERSION: last.version, _FULL_MS: last.full_ms}
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()
