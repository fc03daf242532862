"""A log on this machine's disks: its newest versions are looked up by name, and give the same table
as a listing.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tests.commit.log_of import FakeStore, LogOf, add
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.newest_versions import newest_files
from txlake.commit.table_log import TableLog
from txlake.errors import TxlakeError
from txlake.ports import StoredObject
from txlake.protocol.file_names import LAST_CHECKPOINT_PATH, checksum_path, commit_path
from txlake.protocol.last_checkpoint import HintedCheckpoint, read_hint

_HERE, _DAY_MS = "file:///t", 86_400_000
_V2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}


def _log(versions: int, url: str = _HERE) -> LogOf:
    table = LogOf(url=url).create(add("0"))
    for version in range(1, versions):
        table.commit(version, add(str(version)))
    return table


def _hint(table: LogOf) -> HintedCheckpoint:
    found = read_hint(table.store.files[LAST_CHECKPOINT_PATH][0])
    assert found is not None
    return found


def _found(table: LogOf, start: int, hint: HintedCheckpoint | None = None) -> list[str] | None:
    files = newest_files(table.store, start, hint, table.clock.time_ms)
    return None if files is None else [item.path for item in files]


def _is_listed(store: FakeStore) -> bool:
    listed = any(kind == "list" for kind, _ in store.requests)
    store.requests.clear()
    return listed


def test_commits_the_checkpoint_and_the_newest_checksum_are_found_by_name() -> None:
    table = _log(3)
    write_checkpoint(table.open())
    table.commit(3, add("3")).commit(4, add("4"))
    table.store.put(checksum_path(4), b"{}")
    table.store.put(checksum_path(3), b"{}")
    hint = _hint(table)
    assert _found(table, 2, hint) == [
        str(hint.path),
        commit_path(2),
        commit_path(3),
        checksum_path(4),
        commit_path(4),
    ]
    assert _found(table, 4) == [checksum_path(4), commit_path(4)]


def test_opening_and_refreshing_lists_nothing() -> None:
    table = _log(3)
    write_checkpoint(table.open())
    table.commit(3, add("3"))
    table.store.requests.clear()
    log = table.open()
    assert log.latest().version == 3
    table.commit(4, add("4"))
    assert log.latest().version == 4
    assert not _is_listed(table.store)
    far = _log(3, "s3://bucket/t")
    write_checkpoint(far.open())
    far.store.requests.clear()
    assert far.open().latest().version == 2
    assert _is_listed(far.store)


@pytest.mark.parametrize("lost", [1, 2, 3, 7, 15, 16, 31])
def test_versions_after_a_gap_are_listed(lost: int) -> None:
    table = _log(2 + 2 * lost)
    assert _found(table, 0) is not None
    table.remove_file(*map(commit_path, range(2, 2 + lost)))
    assert _found(table, 0) is None


def test_an_old_log_a_long_one_and_one_without_its_checkpoint_are_listed() -> None:
    table = _log(111)
    assert _found(table, 1) is not None
    assert _found(table, 0) is None
    assert _found(table, 111) is None
    hint = HintedCheckpoint(110, "_delta_log/no.parquet")
    assert _found(table, 110, hint) is None
    assert _found(table, 110, HintedCheckpoint(110, None)) is None
    table.clock.time_ms += _DAY_MS
    assert _found(table, 110) is not None
    table.clock.time_ms += 1
    assert _found(table, 110) is None


def test_a_first_version_that_goes_meanwhile_is_listed() -> None:
    table = _log(3)
    heads = 0

    class Cleaned(FakeStore):
        def head(self, path: str) -> StoredObject | None:
            nonlocal heads
            heads += path == commit_path(1)
            return None if path == commit_path(1) and heads == 2 else super().head(path)

    store = Cleaned(table.clock, _HERE)
    store.files = table.store.files
    assert newest_files(store, 1, None, table.clock.time_ms) is None
    assert heads == 2


def test_a_v2_checkpoint_is_found_by_its_name_in_the_hint() -> None:
    table = LogOf(url=_HERE).create(add("0"), configuration=_V2)
    table.commit(1, add("1"))
    log = table.open()
    write_checkpoint(log, log.latest())
    hint = _hint(table)
    assert hint.path is not None
    found = _found(table, 1, hint)
    assert found is not None
    assert hint.path in found


def _outcome(log: TableLog) -> object:
    try:
        state = log.latest()
    except TxlakeError as error:
        return type(error), str(error).replace("t: ", "")
    return state.version, sorted(item.path for item in state.files.adds())


def _both(seed: int, url: str) -> list[object]:
    """What a reader that opened early and a new one find after the same accidents in a log."""
    chance = random.Random(seed)
    table = _log(chance.randrange(1, 6), url)
    early = table.open()
    outcomes = [_outcome(early)]
    for _ in range(4):
        present = [one for one in range(60) if commit_path(one) in table.store.files]
        newest = max(present, default=-1)
        for version in range(newest + 1, newest + 1 + chance.randrange(6)):
            table.commit(version, add(str(version)))
        if chance.random() < 0.5:
            with suppress(TxlakeError):
                write_checkpoint(table.open())
        if chance.random() < 0.4:
            lost = chance.choice([path for path in table.paths if path.endswith((".json", "et"))])
            table.remove_file(lost)
        if chance.random() < 0.2:
            table.clock.time_ms += _DAY_MS
        outcomes += [_outcome(early), _outcome(table.open())]
    return outcomes


@pytest.mark.parametrize("seed", range(60))
def test_a_log_that_is_looked_up_by_name_is_the_one_that_is_listed(seed: int) -> None:
    assert _both(seed, _HERE) == _both(seed, "memory://t")
