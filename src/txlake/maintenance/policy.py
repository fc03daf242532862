"""What a table and its database say of maintenance: the properties `txlake.maintenance.*`.

Owns their defaults. A table's property comes before its database's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from txlake.protocol.properties import MAINTENANCE_PREFIX, parse_property

_DAY_MS = 86_400_000
_Value = TypeVar("_Value")


class Work(Enum):
    """A kind of maintenance. By value: as the view `txlake.maintenance` names it."""

    CHECKPOINT = "checkpoint"
    LOG_CLEANUP = "log clean-up"
    VACUUM = "vacuum"
    FULL_VACUUM = "full vacuum"
    STATISTICS = "statistics"
    OPTIMIZE = "optimize"
    PURGE = "purge"
    CLUSTER = "cluster"
    ICEBERG = "iceberg metadata"
    LEFTOVERS = "leftovers"  # of the whole lake
    BRANCHES = "branches"  # of the whole lake


_SWITCHES: Mapping[Work, str] = {
    Work.CHECKPOINT: "checkpoint",
    Work.LOG_CLEANUP: "logCleanup",
    Work.VACUUM: "vacuum",
    Work.FULL_VACUUM: "vacuum",
    Work.STATISTICS: "statistics",
    Work.OPTIMIZE: "optimize",
    Work.PURGE: "purge",
    Work.CLUSTER: "cluster",
    Work.ICEBERG: "iceberg",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one table is maintained.

    Attributes:
        enabled: whether it is.
        off: the kinds of work that are switched off.
        small_files_min: how many small files of one partition are packed.
        deleted_share_min: from which share of deleted rows on a file is rewritten.
        unclustered_share_min: from which share of unclustered bytes on a table is clustered.
        expired_files_min: how many files that nobody needs any more are deleted.
        full_vacuum_interval_ms: how often the files are listed, for those that no commit names.
    """

    enabled: bool = True
    off: frozenset[Work] = frozenset()
    small_files_min: int = 50
    deleted_share_min: float = 0.2
    unclustered_share_min: float = 0.2
    expired_files_min: int = 20
    full_vacuum_interval_ms: int = 7 * _DAY_MS

    def allows(self, work: Work) -> bool:
        """Return whether a kind of work may be done."""
        return self.enabled and work not in self.off


def policy_of(database: Mapping[str, str], table: Mapping[str, str]) -> Policy:
    """Return the policy by the properties of a database and of a table.

    A switch that can't be read is off, and a threshold that can't be read has its default: another
    engine may have set anything.
    """
    properties = {**database, **table}
    default = Policy()
    return Policy(
        enabled=_is_on(properties, "enabled"),
        off=frozenset(work for work, name in _SWITCHES.items() if not _is_on(properties, name)),
        small_files_min=_value(properties, "minSmallFiles", default.small_files_min),
        deleted_share_min=_value(properties, "deletedRowsShare", default.deleted_share_min),
        unclustered_share_min=_value(properties, "unclusteredShare", default.unclustered_share_min),
        expired_files_min=_value(properties, "minExpiredFiles", default.expired_files_min),
        full_vacuum_interval_ms=_value(
            properties, "fullVacuumInterval", default.full_vacuum_interval_ms
        ),
    )


def _is_on(properties: Mapping[str, str], name: str) -> bool:
    try:
        return _parsed(properties, name, True)
    except ValueError:
        return False


def _value(properties: Mapping[str, str], name: str, default: _Value) -> _Value:
    try:
        return _parsed(properties, name, default)
    except ValueError:
        return default


def _parsed(properties: Mapping[str, str], name: str, default: _Value) -> _Value:
    """Return a property's value, the default if it isn't set. Raises ValueError."""
    text = properties.get(MAINTENANCE_PREFIX + name)
    if text is None:
        return default
    value = parse_property(MAINTENANCE_PREFIX + name, text)
    assert isinstance(value, type(default)), (name, value)
    return value
