"""A short soak, and checks that its faults and its audit work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.shared_tables.audit import Done, audit
from tests.shared_tables.operations import COLUMNS, Operation, State, applied, first_rows
from tests.shared_tables.workers import Worker, start
from tests.soak.faults import Faults
from tests.soak.lake import LakeRounds, RoundSize, complete_versions, resolve_unknown
from tests.soak.report import Counts
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome
from txlake.storage import open_store
from txlake.storage.local import LocalStore

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("the soak audits its tables itself; the others hold no rows"),
]
SIZE = RoundSize(processes=2, transactions=3, kill_one_in=3, fault_one_in=100)
# With it the first process is killed in its first transaction.
SEED = 10
_ACTIONS = ("get", "list", "put", "delete", "put_if_absent")


@pytest.fixture
def delta_rs(tmp_path: Path) -> Iterator[Worker]:
    started = start("delta-rs", tmp_path / "delta-rs", ())
    yield started
    started.end()


@pytest.mark.broad
def test_a_short_soak_neither_loses_nor_doubles_rows(tmp_path: Path, delta_rs: Worker) -> None:
    counts = Counts()
    rounds = LakeRounds(tmp_path, SIZE, counts)
    try:
        rounds.round(SEED, [delta_rs])
    finally:
        rounds.end()
    assert counts.faults == []
    assert (counts.lost, counts.doubled) == (0, 0)
    assert counts.commits["txlake"] > 10
    assert counts.kills["lake"] > 0


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Faults that are installed for this test only."""
    for name in _ACTIONS:
        monkeypatch.setattr(LocalStore, name, getattr(LocalStore, name))
    faults = Faults("1")
    faults.install()
    return faults


def test_every_fault_occurs(faults: Faults, tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    faults.one_in = 3
    requests = (
        lambda: store.put("a", b"1"),
        lambda: store.get("a"),
        lambda: store.list(""),
        lambda: store.delete(["b"]),
    )
    for request in requests:
        for _ in range(30):
            with suppress(Unavailable, InvalidRequest, FileNotFoundError):
                request()
    outcomes: Counter[PutOutcome] = Counter()
    for number in range(60):
        with suppress(InvalidRequest):
            outcomes[store.put_if_absent(f"n{number}", b"1")] += 1
    assert set(outcomes) == {PutOutcome.CREATED, PutOutcome.UNKNOWN}
    both = ("never arrived", "lost its reply")
    assert set(faults.injected) == {
        "disk full",
        *(f"{name} {how}" for name in _ACTIONS for how in both),
    }


def table(folder: Path, *commits: list[dict[str, Any]]) -> Path:
    """Write a log with these commits and create their files; return the table's folder."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, actions in enumerate(commits):
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (log / f"{version:020}.json").write_text(text)
        for action in actions:
            if "add" in action:
                (folder / action["add"]["path"]).touch()
    return folder


def commit_info(marker: str, operation: str = "WRITE") -> dict[str, Any]:
    return {"commitInfo": {"userMetadata": marker, "operation": operation, "engineInfo": "e/1"}}


def add(path: str, rows: int) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": path, "dataChange": True, "stats": stats}}


def creation() -> list[dict[str, Any]]:
    schema = json.dumps({"fields": [{"name": name} for name in COLUMNS]})
    return [commit_info("", "CREATE TABLE"), {"metaData": {"schemaString": schema}}]


def test_a_partial_transaction_is_a_fault(tmp_path: Path) -> None:
    first = first_rows(COLUMNS)
    one = table(tmp_path / "one", creation(), [commit_info("first"), add("a", 24)])
    two = table(tmp_path / "two", creation())
    done = {
        "one": [Done(first, 0, 9, "unknown")],
        "two": [Done(first, 0, 9, "unknown")],
    }
    resolved = resolve_unknown(done, {"one": one, "two": two})
    assert audit(one, resolved["one"], []).faults == []
    assert audit(two, done["two"], []).faults == []
    verdict = audit(two, resolved["two"], [])
    assert verdict.lost == 1
    assert "no commit is its" in verdict.faults[0]


def test_only_versions_with_all_files_are_compared(tmp_path: Path) -> None:
    remove = {"remove": {"path": "a", "dataChange": True}}
    folder = table(
        tmp_path / "t",
        creation(),
        [commit_info("first"), add("a", 24)],
        [commit_info("", "VACUUM START")],
        [commit_info("again"), remove, add("b", 24)],
        [commit_info("", "VACUUM END")],
    )
    assert complete_versions(folder) == [0, 1, 2, 3, 4]
    (folder / "a").unlink()
    assert complete_versions(folder) == [0, 3, 4]
    again = replace(first_rows(COLUMNS), kind="overwrite", marker="again")
    done = [Done(first_rows(COLUMNS), 0, 1), Done(again, 1, 3)]
    assert audit(folder, done, []).faults == []


def test_an_overwrite_keeps_rows_that_it_did_not_read() -> None:
    row: Mapping[str, int | str | None] = {"id": 1, "k": 0, "n": 0, "s": ""}
    states = [
        State(COLUMNS, {}),
        State(COLUMNS, {1: row}),
        State(COLUMNS, {1: row, 2: {**row, "id": 2}}),
    ]
    operations = {
        "overwrite": Operation(kind="overwrite", marker="", rows=[[3, 0, 0, ""]]),
        "truncate": Operation(kind="truncate", marker=""),
        "restore": Operation(kind="restore", marker="", low=1),
    }
    ids_after = {kind: set(applied(one, states).rows) for kind, one in operations.items()}
    assert ids_after == {"overwrite": {3}, "truncate": set(), "restore": {1}}
    ids_after_other = {
        kind: set(applied(one, states, frozenset({2})).rows) for kind, one in operations.items()
    }
    assert ids_after_other == {"overwrite": {2, 3}, "truncate": {2}, "restore": {1, 2}}
