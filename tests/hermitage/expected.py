"""What each cell of the grid has to be, by docs/isolation.md: written down, not recorded.

Reads are from one snapshot at every level, so what only reads is prevented without a conflict. Who
commits second and took a row that the first one took gives way at every level; where its own
condition matches a row that the first one added, that rule is asked before, from WriteSerializable
on. Under Serializable SELECTs are asked before everything else. Path tables have no common instant,
and a transaction writes one of them at most.
"""

from __future__ import annotations

from tests.hermitage.running import Level, Place
from tests.hermitage.scripts import SCRIPTS

Key = tuple[str, Level, Place]

_SNAPSHOT = "snapshot"
_ALLOWED = "allowed"
_REFUSED = "refused"
_APPEND = "ConcurrentAppendException"
_DELETE_DELETE = "ConcurrentDeleteDeleteException"
_SELECT = "SerializableIsolationViolation"

# Per script, under Snapshot, WriteSerializable and Serializable.
_OUTCOMES: dict[str, tuple[str, str, str]] = {
    "G0": (f"T2: {_DELETE_DELETE}", f"T2: {_APPEND}", f"T2: {_APPEND}"),
    "G1a": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "G1b": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "G1c": (_SNAPSHOT, _SNAPSHOT, f"T2: {_SELECT}"),
    "OTV": (f"T2: {_DELETE_DELETE}", f"T2: {_APPEND}", f"T2: {_APPEND}"),
    "PMP": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "PMP, write": (f"T2: {_DELETE_DELETE}", f"T2: {_APPEND}", f"T2: {_APPEND}"),
    "P4": (f"T2: {_DELETE_DELETE}", f"T2: {_APPEND}", f"T2: {_SELECT}"),
    "G-single": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "G-single, predicate": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "G-single, write": (f"T1: {_DELETE_DELETE}", f"T1: {_DELETE_DELETE}", f"T1: {_SELECT}"),
    "G-single, two writers": (_SNAPSHOT, _SNAPSHOT, _SNAPSHOT),
    "G2-item": (_ALLOWED, _ALLOWED, f"T2: {_SELECT}"),
    "G2": (_ALLOWED, _ALLOWED, f"T2: {_SELECT}"),
    "G2, two edges": (_ALLOWED, _ALLOWED, f"T1: {_SELECT}"),
    "G2, in writes": (_ALLOWED, f"T2: {_APPEND}", f"T2: {_APPEND}"),
}

# Of two path tables, where it is something else.
_TWO_PATH: dict[str, str] = {
    **dict.fromkeys(("G0", "OTV", "PMP, write", "P4"), _REFUSED),
    **dict.fromkeys(("G-single", "G-single, predicate", "G-single, write"), _REFUSED),
    # T1 reads each table at the version that was newest when it first read that table.
    "G-single, two writers": _ALLOWED,
}


def expected() -> dict[Key, str]:
    """Every cell."""
    return {
        (script.name, level, place): _TWO_PATH.get(script.name, outcome)
        if place is Place.TWO_PATH
        else outcome
        for script in SCRIPTS
        for level, outcome in zip(Level, _OUTCOMES[script.name], strict=True)
        for place in Place
    }
