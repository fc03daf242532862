"""The audit sees what is wrong: a sound table, damaged in one place, and what is said of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.shared_tables.audit import Done, audit, carried_out, first_columns
from tests.shared_tables.operations import COLUMNS, Chooser, first_rows
from tests.shared_tables.workers import Worker, start

pytestmark = pytest.mark.no_interop("damaged on purpose")
SEED = "3"
Actions = list[dict[str, Any]]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """delta-rs, which starts at once."""
    started = start("delta-rs", tmp_path_factory.mktemp("worker"), ())
    yield started
    started.end()


@pytest.fixture(scope="module")
def sound(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Done]]:
    """A table of seven versions: first rows, append, update, append, delete, merge."""
    folder = tmp_path_factory.mktemp("sound") / "t"
    schema = pa.schema(
        [(name, pa.string() if name == "s" else pa.int64()) for name in COLUMNS],
    )
    DeltaTable.create(folder, schema)
    chooser = Chooser(SEED, "delta-rs", 0, ())
    operations = [first_rows(first_columns(folder))]
    operations += [chooser.operation(k) for k in ("append", "update", "append", "delete", "merge")]
    return folder, [carried_out(worker, folder, operation)[0] for operation in operations]


@pytest.fixture
def damaged(sound: tuple[Path, list[Done]], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(sound[0], tmp_path / "t"))


def test_nothing_is_said_of_a_sound_table(worker: Worker, sound: tuple[Path, list[Done]]) -> None:
    verdict = audit(*sound, [worker])
    assert (verdict.faults, verdict.versions) == ([], 7)


def commit(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


def edited(folder: Path, version: int, edit: Callable[[Actions], Actions]) -> None:
    path = commit(folder, version)
    actions = edit([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def without(kind: str) -> Callable[[Actions], Actions]:
    return lambda actions: [action for action in actions if kind not in action]


def test_a_lost_add_is_seen(worker: Worker, sound: tuple[Path, list[Done]], damaged: Path) -> None:
    edited(damaged, 2, without("add"))
    verdict = audit(damaged, sound[1], [worker])
    assert verdict.lost > 0
    assert "version 2: the files have 24 rows" in verdict.faults[0]


def test_rows_that_a_reader_lacks_are_seen_without_the_files_counts(
    worker: Worker, sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    def uncounted(actions: Actions) -> Actions:
        for action in actions:
            if "add" in action:
                del action["add"]["stats"]
        return actions

    for version in range(1, 7):
        edited(damaged, version, uncounted)
    edited(damaged, 2, without("add"))
    faults = audit(damaged, sound[1], [worker]).faults
    assert faults
    assert all("delta-rs lacks" in fault for fault in faults)


def test_a_doubled_add_is_seen(
    worker: Worker, sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    def twice(actions: Actions) -> Actions:
        (add,) = [action["add"] for action in actions if "add" in action]
        shutil.copy(damaged / add["path"], damaged / "copy.parquet")
        return [*actions, {"add": {**add, "path": "copy.parquet"}}]

    edited(damaged, 2, twice)
    verdict = audit(damaged, sound[1], [worker])
    assert verdict.doubled > 0
    assert "the files have" in verdict.faults[0]


def test_a_kept_remove_is_seen(
    worker: Worker, sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    edited(damaged, 3, without("remove"))
    verdict = audit(damaged, sound[1], [worker])
    assert verdict.doubled > 0


def test_an_operation_committed_twice_is_seen(
    worker: Worker, sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    shutil.copy(commit(damaged, 3), commit(damaged, 7))  # an update: it can be replayed twice
    verdict = audit(damaged, sound[1], [])
    assert verdict.doubled == 1
    assert any("again" in fault for fault in verdict.faults)
    assert any("not there" in fault for fault in verdict.faults)


def test_a_lost_commit_is_seen(sound: tuple[Path, list[Done]], damaged: Path) -> None:
    commit(damaged, 6).unlink()
    verdict = audit(damaged, sound[1], [])
    assert verdict.lost == 1
    assert "no commit is its" in verdict.faults[0]


def test_a_commit_of_nobody_is_seen(sound: tuple[Path, list[Done]], damaged: Path) -> None:
    verdict = audit(damaged, sound[1][:-1], [])
    assert "version 6 is nobody's" in verdict.faults[0]


def test_a_commit_of_an_operation_that_gave_up_is_seen(
    sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    *others, last = sound[1]
    given_up = Done(last.operation, last.first, last.last, "given up")
    assert "gave up" in audit(damaged, [*others, given_up], []).faults[0]


def test_a_killed_operation_may_have_committed_or_not(
    sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    *others, last = sound[1]
    unknown = Done(last.operation, last.first, last.last, "unknown")
    assert audit(damaged, [*others, unknown], []).faults == []
    commit(damaged, 6).unlink()
    assert audit(damaged, [*others, unknown], []).faults == []


def test_row_ids_given_twice_and_times_that_go_back_are_seen(
    sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    def numbered(actions: Actions) -> Actions:
        for action in actions:
            if "add" in action:
                action["add"]["baseRowId"] = 0
            if "commitInfo" in action:
                action["commitInfo"]["inCommitTimestamp"] = 5
        return sorted(actions, key=lambda action: "commitInfo" not in action)

    edited(damaged, 1, numbered)
    edited(damaged, 2, numbered)
    faults = audit(damaged, sound[1], []).faults
    assert any(fault.startswith("version 2 gives row ids of") for fault in faults)
    assert "version 2 has the time 5, after 5" in faults
    assert any("without row ids" in fault for fault in faults)


def test_a_refusal_to_read_is_expected_or_a_fault(
    worker: Worker, sound: tuple[Path, list[Done]], damaged: Path
) -> None:
    def unknown(actions: Actions) -> Actions:
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["telepathy"],
                    "writerFeatures": ["telepathy"],
                }
        return actions

    assert audit(*sound, [worker], {"delta-rs": "telepathy"}).faults
    edited(damaged, 0, unknown)
    assert audit(damaged, sound[1], [worker], {"delta-rs": "telepathy"}).faults == []
    assert audit(damaged, sound[1], [worker]).faults
