"""Every golden table, checkpointed by us, is the same table when its commits are gone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.commit.log_of import FakeStore, LogOf
from tests.golden import golden_tables
from txlake.commit.checkpointing import write_checkpoint
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Protocol, Remove, action_to_object
from txlake.protocol.checkpoints import read_checkpoint
from txlake.protocol.file_names import ClassicCheckpoint, V2Checkpoint, parse_name
from txlake.settings import Settings

Described = Mapping[str, Any]


def _is_sound(table: Described) -> bool:
    versions = table["versions"]
    if not versions:
        return False
    expect = versions[0]["expect"]
    return expect["status"] != "invalid" and not expect.get("must_refuse")


_TABLES = [
    pytest.param(table, id=str(table["id"])) for table in golden_tables() if _is_sound(table)
]


def _copied(golden: Path, table: Described, settings: Settings) -> LogOf:
    """The table's log in memory, at a time when no tombstone has expired."""
    copy = LogOf(settings)
    copy.clock.time_ms = 0
    root = golden / str(table["path"])
    for path in sorted((root / "_delta_log").rglob("*")):
        if path.is_file():
            copy.store.put(path.relative_to(root).as_posix(), path.read_bytes())
    return copy


def _drop_all_but_new(store: FakeStore, before: set[str]) -> None:
    for path in before:
        if parse_name(path) is not None:
            store.files.pop(path, None)


def _as_stored(action: Add | Remove) -> object:
    """An action as a checkpoint keeps it: statistics compared as values."""
    if isinstance(action, Remove):
        return action_to_object(msgspec.structs.replace(action, stats=None, tags=None))
    fields = dict(action_to_object(action)["add"])  # type: ignore[call-overload]
    stats = json.loads(fields.pop("stats", None) or "{}")
    vector = dict(fields.pop("deletionVector", {}))
    vector.pop("maxRowIndex", None)
    return {**fields, "dataChange": None, "stats": stats, "vector": vector}


def _check_same(after: Snapshot, before: Snapshot, *, with_stats: bool) -> None:
    assert after.version == before.version
    assert after.metadata == before.metadata
    assert after.protocol == before.protocol
    assert after.app_transactions == before.app_transactions
    assert after.domains == before.domains
    old = {add.key: add for add in before.files.adds()}
    new = {add.key: add for add in after.files.adds()}
    if not with_stats:
        old = {key: msgspec.structs.replace(add, stats=None) for key, add in old.items()}
        new = {key: msgspec.structs.replace(add, stats=None) for key, add in new.items()}
    assert {key: _as_stored(add) for key, add in new.items()} == {
        key: _as_stored(add) for key, add in old.items()
    }
    removed = {key: _as_stored(item) for key, item in before.tombstones.items()}
    assert {key: _as_stored(item) for key, item in after.tombstones.items()} == removed


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("rows_max", [1_000_000, 2])
@pytest.mark.parametrize("table", _TABLES)
def test_a_checkpoint_is_the_table(golden: Path, table: Described, rows_max: int) -> None:
    copy = _copied(golden, table, Settings(checkpoint_part_rows_max=rows_max))
    log = copy.open()
    before = log.latest()
    dict(before.tombstones)  # read while their checkpoint is there
    files = set(copy.paths)
    copy.store.requests.clear()
    write_checkpoint(log)
    rewritten = {path for kind, path in copy.store.requests if kind == "put"}
    _drop_all_but_new(copy.store, files - rewritten)
    as_json = before.properties.checkpoint_write_stats_as_json
    _check_same(copy.open().latest(), before, with_stats=as_json)


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("table", _TABLES)
def test_a_v2_checkpoint_is_the_table(golden: Path, table: Described) -> None:
    copy = _copied(golden, table, Settings(checkpoint_part_rows_max=3))
    log = copy.open()
    before = log.latest()
    dict(before.tombstones)
    configuration = {**before.metadata.configuration, "delta.checkpointPolicy": "v2"}
    features = before.features | {"v2Checkpoint"}
    readers = {*(before.protocol.reader_features or ()), "v2Checkpoint"}
    if "columnMapping" in features:
        readers.add("columnMapping")
    before = dataclasses.replace(
        before,
        metadata=msgspec.structs.replace(before.metadata, configuration=configuration),
        protocol=Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=tuple(sorted(readers)),
            writer_features=tuple(sorted(features)),
        ),
    )
    files = set(copy.paths)
    write_checkpoint(log, before)
    _drop_all_but_new(copy.store, files)
    manifests = [path for path in copy.paths if isinstance(parse_name(path), V2Checkpoint)]
    assert len(manifests) == 1
    assert read_checkpoint(copy.store.files[manifests[0]][0], file="m").columns.num_rows == 0
    assert not any(isinstance(parse_name(path), ClassicCheckpoint) for path in copy.paths)
    as_json = before.properties.checkpoint_write_stats_as_json
    _check_same(copy.open().latest(), before, with_stats=as_json)
