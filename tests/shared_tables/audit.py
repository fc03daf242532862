"""The verdict on a shared table: its log tells the order of the operations, a model their rows.

`audit` reads the log's JSON by itself, replays the operations that the commits carry the markers
of, and asks every reader for every version. It knows no engine's rules.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.shared_tables.operations import Operation, State, applied
from tests.shared_tables.workers import Refused, Worker


@dataclass(frozen=True, slots=True)
class Done:
    """How an operation went, as its worker saw it.

    Attributes:
        first, last: the table's version before it began and after it ended.
        outcome: `committed`, `given up` (by its engine) or `unknown` (its process was killed).
    """

    operation: Operation
    first: int
    last: int
    outcome: str = "committed"


@dataclass(slots=True)
class Verdict:
    """What the audit counted; `faults` is empty when nothing is wrong.

    Attributes:
        commits: how many of each engine there are.
        lost, doubled: rows, or whole operations, that a version lacks or has twice.
    """

    commits: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)


def latest(folder: Path) -> int:
    """The newest commit's version."""
    return max(
        int(entry.name[:20])
        for entry in (folder / "_delta_log").iterdir()
        if entry.name.endswith(".json") and entry.name[:20].isdigit() and len(entry.name) == 25
    )


def commits(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The actions of every commit, version 0 first."""
    for version in range(latest(folder) + 1):
        text = (folder / "_delta_log" / f"{version:020}.json").read_text()
        yield [json.loads(line) for line in text.splitlines() if line.strip()]


def first_columns(folder: Path) -> tuple[str, ...]:
    """The columns that version 0 gives the table."""
    actions = next(commits(folder))
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    return tuple(column["name"] for column in json.loads(metadata["schemaString"])["fields"])


def carried_out(worker: Worker, folder: Path, operation: Operation) -> tuple[Done, int]:
    """The operation by this worker, with what is known of it then, and its conflicts."""
    first = latest(folder)
    try:
        conflicts = worker.apply(folder, operation)
    except Refused as refusal:
        if not refusal.conflict:
            raise
        return Done(operation, first, latest(folder), "given up"), refusal.conflicts
    return Done(operation, first, latest(folder)), conflicts


def audit(
    folder: Path,
    done: Sequence[Done],
    readers: Sequence[Worker],
    unread: Mapping[str, str] | None = None,
    read: Sequence[int] | None = None,
) -> Verdict:
    """Replays the table by its log and compares every reader at every version, or those of `read`.

    Version 0 creates the table with no row. Every later commit carries the marker of one operation,
    or is VACUUM's. The readers named in `unread` refuse the table, and say what stands there.
    """
    verdict = Verdict()
    by_marker = {one.operation.marker: one for one in done}
    states, seen = _replayed(folder, by_marker, verdict)
    for marker, one in by_marker.items():
        if marker not in seen:
            _absent(one, states, verdict)
    _files(folder, states, verdict)
    _row_ids(folder, verdict)
    _times(folder, verdict)
    versions = range(len(states)) if read is None else read
    verdict.versions = len(versions)
    expected = {version: states[version].lines() for version in versions}
    with ThreadPoolExecutor(len(readers) or 1) as pool:
        reads = [pool.submit(_read, reader, folder, versions) for reader in readers]
        for reader, running in zip(readers, reads, strict=True):
            refusal = (unread or {}).get(reader.engine)
            rows = running.result(300)
            if isinstance(rows, list) and refusal is None:
                _compare(reader.engine, rows, expected, verdict)
            elif isinstance(rows, list) or refusal is None or refusal not in str(rows):
                verdict.faults.append(f"{reader.engine}: expected {refusal}, and it was {rows}")
    return verdict


def _read(reader: Worker, folder: Path, versions: Sequence[int]) -> list[list[str]] | Refused:
    try:
        return reader.read(folder, versions)
    except Refused as refusal:
        return refusal


def _replayed(
    folder: Path, by_marker: Mapping[str, Done], verdict: Verdict
) -> tuple[list[State], set[str]]:
    states = [State(first_columns(folder), {})]
    seen: set[str] = set()
    for version, actions in enumerate(commits(folder)):
        about = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        verdict.commits[str(about.get("engineInfo", "")).partition("/")[0]] += 1
        if version == 0:
            continue
        if str(about.get("operation", "")).startswith("VACUUM "):
            states.append(State(states[-1].columns, states[-1].rows))
            continue
        marker = str(about.get("userMetadata"))
        one = by_marker.get(marker)
        if one is None:
            verdict.faults.append(f"version {version} is nobody's: {about}")
            states.append(states[-1])
            continue
        if marker in seen:
            verdict.doubled += 1
            verdict.faults.append(f"version {version} commits {one.operation} again")
        if one.outcome == "given up":
            verdict.faults.append(f"version {version} is of {one.operation}, which gave up")
        seen.add(marker)
        overlooked = _overlooked(about, states)
        states.append(applied(one.operation, states, overlooked))
    return states, seen


def _overlooked(about: Mapping[str, Any], states: Sequence[State]) -> frozenset[int]:
    """The rows that were inserted after the version which the commit read, where it may do so."""
    if about.get("isolationLevel") != "WriteSerializable":
        return frozenset()
    return frozenset().union(*(state.appended for state in states[about["readVersion"] + 1 :]))


def _absent(one: Done, states: Sequence[State], verdict: Verdict) -> None:
    """An operation may leave no commit only when there was nothing to do for it."""
    if one.outcome != "committed" or one.operation.kind in ("optimize", "reorg", "checkpoint"):
        return
    window = range(max(0, one.first - one.operation.behind), min(one.last, len(states) - 1) + 1)
    if not any(applied(one.operation, states[: v + 1]) == states[v] for v in window):
        verdict.lost += 1
        verdict.faults.append(f"{one.operation} was told to be committed, and no commit is its")


def _files(folder: Path, states: Sequence[State], verdict: Verdict) -> None:
    """No file is added twice, none removed that isn't there, and their rows are the model's."""
    active: dict[str, tuple[object, int | None]] = {}
    for version, actions in enumerate(commits(folder)):
        for action in actions:
            if "remove" in action:
                path, vector = _key(action["remove"])
                if path not in active or active[path][0] != vector:
                    verdict.faults.append(f"version {version} removes {path} {vector}: not there")
                active.pop(path, None)
        for action in actions:
            if "add" not in action:
                continue
            path, vector = _key(action["add"])
            if path in active and action["add"]["dataChange"]:
                verdict.faults.append(f"version {version} adds {path} {vector}, which is there")
            stats = json.loads(action["add"].get("stats") or "{}")
            deleted = (action["add"].get("deletionVector") or {}).get("cardinality", 0)
            records = stats.get("numRecords")
            active[path] = (vector, None if records is None else records - deleted)
        counts = [count for _, count in active.values()]
        if None not in counts:
            total = sum(count or 0 for count in counts)
            expected = len(states[version].rows)
            if total != expected:
                verdict.faults.append(
                    f"version {version}: the files have {total} rows, the operations {expected}"
                )


def _key(action: Mapping[str, Any]) -> tuple[str, object]:
    vector = action.get("deletionVector")
    found = None if vector is None else (vector["pathOrInlineDv"], vector.get("offset"))
    return unquote(action["path"]), found


def _row_ids(folder: Path, verdict: Verdict) -> None:
    """Where rows are tracked, every file has row ids that no other file ever had."""
    ids: dict[str, range] = {}
    for version, actions in enumerate(commits(folder)):
        for add in (action["add"] for action in actions if "add" in action):
            if (first := add.get("baseRowId")) is None:
                if ids:
                    verdict.faults.append(f"version {version} adds {add['path']} without row ids")
                continue
            own = range(first, first + json.loads(add["stats"])["numRecords"])
            for path, others in ids.items():
                shared = own.start < others.stop and others.start < own.stop
                if shared and path != add["path"]:
                    verdict.faults.append(f"version {version} gives row ids of {path} again")
            ids[add["path"]] = own


def _times(folder: Path, verdict: Verdict) -> None:
    """Where commits have times of their own, each is later than the one before."""
    before = -1
    for version, actions in enumerate(commits(folder)):
        now = actions[0].get("commitInfo", {}).get("inCommitTimestamp")
        if before >= 0 and (now is None or now <= before):
            verdict.faults.append(f"version {version} has the time {now}, after {before}")
        before = before if now is None else now


def _compare(
    name: str, read: Sequence[list[str]], expected: Mapping[int, list[str]], verdict: Verdict
) -> None:
    for found, (version, right) in zip(read, expected.items(), strict=True):
        if found != right:
            theirs, ours = Counter(found), Counter(right)
            lost, extra = ours - theirs, theirs - ours
            verdict.lost += lost.total()
            verdict.doubled += extra.total()
            verdict.faults.append(
                f"version {version}: {name} lacks {list(lost)[:3]} and has besides "
                f"{list(extra)[:3]}"
            )
