"""Since which version a table is defined as it is: the newest one that changed more than rows.

Found by looking back in the log, and remembered for as long as the definition stays. Source: Unity
Catalog's Delta API, `last-commit-version`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from txlake.log.snapshot import ROW_TRACKING_DOMAIN
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol
from txlake.transaction.table_log import TableLog

_COMMITS_MAX = 50
_KEPT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Defined:
    """A version, and when it was committed, milliseconds since the epoch."""

    version: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found when a table was looked at in a version; `tag` as for `defined_since`."""

    tag: str
    version: int
    defined: Defined


_seen: dict[str, _Seen] = {}
_lock = threading.Lock()


def defined_since(log: TableLog, table_id: str, tag: str, version: int) -> Defined | None:
    """Which version defined a table as it is at `version`; None when that is too long ago to find.

    `tag` tells the table's definitions apart.
    """
    with _lock:
        before = _seen.get(table_id)
    found = _looked_up(log, version, before)
    if found is None and before is not None and before.tag == tag:
        found = before.defined
    if found is not None:
        with _lock:
            if len(_seen) >= _KEPT_MAX:
                _seen.clear()
            _seen[table_id] = _Seen(tag, version, found)
    return found


def _looked_up(log: TableLog, newest: int, before: _Seen | None) -> Defined | None:
    for version in range(newest, max(-1, newest - _COMMITS_MAX), -1):
        if before is not None and version == before.version:
            return before.defined
        commit = log.commit(version)
        if commit is None:
            return None
        if any(map(_defines, commit.actions)):
            return Defined(version, commit.timestamp_ms)
    return None


def _defines(action: Action) -> bool:
    """A table's definition; the mark of its row ids grows with its rows."""
    if isinstance(action, DomainMetadata):
        return action.domain != ROW_TRACKING_DOMAIN
    return isinstance(action, Metadata | Protocol)
