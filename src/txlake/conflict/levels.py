"""The isolation levels: their names, their order, and the level at which reads are checked.

Source: docs/how-a-commit-works.md, "Levels". Python writes `write_serializable`, table
properties `WriteSerializable`, a commitInfo `WriteSerializable` and `SnapshotIsolation`, as Delta
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from txlake.errors import InvalidRequest


class Level(Enum):
    """How much of concurrent transactions may be visible, from the loosest to the strictest.

    SNAPSHOT: one snapshot is read, and no row is changed by two overlapping transactions.
    WRITE_SERIALIZABLE: the writes equal some serial order. The default. SERIALIZABLE: everything
    equals running the transactions one by one in log order.
    """

    SNAPSHOT = "snapshot"
    WRITE_SERIALIZABLE = "write_serializable"
    SERIALIZABLE = "serializable"

    @property
    def strictness(self) -> int:
        """Greater is stricter."""
        return _ORDER.index(self)

    @property
    def delta_name(self) -> str:
        """The name that a commitInfo's `isolationLevel` has for it."""
        return _DELTA_NAMES[self]


_ORDER = (Level.SNAPSHOT, Level.WRITE_SERIALIZABLE, Level.SERIALIZABLE)
_DELTA_NAMES: Mapping[Level, str] = {
    Level.SNAPSHOT: "SnapshotIsolation",
    Level.WRITE_SERIALIZABLE: "WriteSerializable",
    Level.SERIALIZABLE: "Serializable",
}
_SPELLINGS: Mapping[str, Level] = {
    "snapshot": Level.SNAPSHOT,
    "snapshotisolation": Level.SNAPSHOT,
    "writeserializable": Level.WRITE_SERIALIZABLE,
    "serializable": Level.SERIALIZABLE,
}


def parse_level(text: str) -> Level:
    """Return the level of this name, in any letter case and with or without `_`, `-` and blanks.

    `SnapshotIsolation` is SNAPSHOT. Raises InvalidRequest that lists the levels.
    """
    folded = str(text).strip().lower().replace("_", "").replace("-", "").replace(" ", "")
    level = _SPELLINGS.get(folded)
    if level is None:
        raise InvalidRequest(
            f"unknown isolation level {text!r}; "
            "expected serializable, write_serializable or snapshot"
        )
    return level


def strictest(*levels: Level | None) -> Level:
    """Return the strictest of the levels that aren't None; WRITE_SERIALIZABLE if all are."""
    wanted = [level for level in levels if level is not None]
    return max(wanted, key=lambda level: level.strictness, default=Level.WRITE_SERIALIZABLE)


def checked_at(level: Level, *, changes_data: bool, syncs_marks: bool = False) -> Level:
    """Return the level at which a transaction's reads are checked.

    A transaction that changes no data (a compaction, a metadata-only commit) is checked at
    SNAPSHOT: its order relative to a winner changes no row. With `syncs_marks` the commit claims
    that no row's identity value is beyond its mark; under SERIALIZABLE that has to hold in the
    order of the log, so the level stays.
    """
    keeps = changes_data or (syncs_marks and level is Level.SERIALIZABLE)
    return level if keeps else Level.SNAPSHOT
