"""Coverage of many runs: the rules, deletion vectors and places of faults that were reached.

Each count has a name of two parts, `<part>: <cell>`; a table of all cells shows which are empty.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.simulation.faults import InjectedFault
from tests.simulation.records import Record
from txlake.conflict.levels import Level

_OBJECT_KINDS = (
    ("commit", re.compile(r"/_delta_log/\d{20}\.json")),
    ("staged commit", re.compile(r"/_staged_commits/")),
    ("checkpoint", re.compile(r"/_delta_log/.*(checkpoint|_sidecars|\.crc)")),
    ("vector", re.compile(r"/deletion_vector_")),
    ("change file", re.compile(r"/_change_data/")),
    ("data file", re.compile(r"\.parquet$")),
    ("lake's file", re.compile(r"/_txlake/")),
)
_FORMS = {"i": "inline", "u": "in a file", "p": "in a file"}


def count_cells(
    records: Iterable[Record], injected: Iterable[InjectedFault], commits: Iterable[bytes]
) -> Counter[str]:
    """Count the cells that one run reached.

    Args:
        records: the run's transactions.
        injected: the run's faults.
        commits: the contents of the commits in its logs.
    """
    counts: Counter[str] = Counter()
    for record in records:
        if record.rule:
            counts[f"rule: {record.rule}, {record.level.value}"] += 1
    for fault in injected:
        counts[f"fault: {fault.kind.name}, {target_of(fault.where)}"] += 1
    for commit in commits:
        for line in commit.splitlines():
            counts.update(f"vectors: {form}" for form in _vectors_of(line))
    return counts


def target_of(where: str) -> str:
    """Return what a fault struck: the kind of object, or the request."""
    rest = where.partition(" ")[2]
    for name, pattern in _OBJECT_KINDS:
        if pattern.search(f"/{rest}"):
            return name
    return rest if "/" not in rest else "another object"


def _vectors_of(line: bytes) -> Iterable[str]:
    try:
        action = json.loads(line)
    except ValueError:
        return  # another engine's malformed commit
    added = action.get("add") if isinstance(action, dict) else None
    if added is not None:
        vector = added.get("deletionVector")
        yield "none" if vector is None else _FORMS[vector["storageType"]]


def report(total: Mapping[str, int]) -> list[str]:
    """Return lines that show how often each cell was reached, and name those that weren't."""
    lines: list[str] = []
    for part in ("rule", "vectors", "fault"):
        start = f"{part}: "
        reached = {
            name.removeprefix(start): n for name, n in total.items() if name.startswith(start)
        }
        lines.append(start + "; ".join(f"{cell} {n}" for cell, n in sorted(reached.items())))
    empty = missing(total)
    if empty:
        lines.append(f"never reached: {'; '.join(empty)}")
    return lines


def missing(total: Mapping[str, int]) -> list[str]:
    """Return the cells that a long run has to reach and didn't, sorted."""
    return sorted(cell for cell in REACHABLE if not total.get(cell))


_ROWS = ("rows_added", "rows_deleted", "rows_deleted_by_both", "table_changed_by_both")
_OFF_AT_SNAPSHOT = {"rows_added", "rows_deleted"}
REACHABLE = frozenset(
    {
        "vectors: in a file",
        "vectors: none",
        f"rule: select_not_true, {Level.SERIALIZABLE.value}",
        *(
            f"rule: {rule}, {level.value}"
            for rule in _ROWS
            for level in Level
            if level is not Level.SNAPSHOT or rule not in _OFF_AT_SNAPSHOT
        ),
    }
)
"""The cells that a run of thousands of seeds has to reach.

Rules about settings aren't among them: a lake's definitions wait for locks instead, and no program
changes the settings of a path table (tests/lake/test_definition_conflicts.py and
tests/conflict/test_histories.py reach these). Nor are inline vectors, which txlake doesn't write.
"""
