"""The version that last changed a table's definition, that is, more than its rows.

It is searched backwards in the log, and cached while the definition stays. Source: Unity Catalog's
Delta API, `last-commit-version`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from txlake.commit.table_log import TableLog
from txlake.log.snapshot import ROW_TRACKING_DOMAIN
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol

_COMMITS_MAX = 50
_CACHED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """A version, and the time of its commit in milliseconds since the epoch."""

    version: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """The result of the last search for a table; `tag` as for `definition_version`."""

    tag: str
    version: int
    definition: DefinitionVersion


_cache: dict[str, _CacheEntry] = {}
_lock = threading.Lock()


def definition_version(
    log: TableLog, table_id: str, tag: str, version: int
) -> DefinitionVersion | None:
    """Return the version that defined a table as it is at `version`.

    None if none of the newest 50 commits did (or one of them isn't in the log), and the cache has
    no answer for this definition either. `tag` changes with the table's definition.
    """
    with _lock:
        cached = _cache.get(table_id)
    result = _search_log(log, version, cached)
    if result is None and cached is not None and cached.tag == tag:
        result = cached.definition
    if result is not None:
        with _lock:
            if len(_cache) >= _CACHED_MAX:
                _cache.clear()
            _cache[table_id] = _CacheEntry(tag, version, result)
    return result


def _search_log(log: TableLog, newest: int, cached: _CacheEntry | None) -> DefinitionVersion | None:
    """Return the newest version up to `newest` that changed the definition.

    None where neither such a version nor the cached search is among the versions looked at.
    """
    for version in range(newest, max(-1, newest - _COMMITS_MAX), -1):
        if cached is not None and version == cached.version:
            return cached.definition
        commit = log.commit(version)
        if commit is None:
            return None
        if any(map(_changes_definition, commit.actions)):
            return DefinitionVersion(version, commit.timestamp_ms)
    return None


def _changes_definition(action: Action) -> bool:
    """Return whether an action changes the definition; the row ids' high-water mark doesn't."""
    if isinstance(action, DomainMetadata):
        return action.domain != ROW_TRACKING_DOMAIN
    return isinstance(action, Metadata | Protocol)
