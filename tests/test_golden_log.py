"""Every version of every golden table: the log says what the manifest says, errors included."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.golden import golden_tables
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import FileKey
from txlake.protocol.types import Field, Struct, type_to_json
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

Described = Mapping[str, Any]

_TABLES = golden_tables()
_VERSIONS = [
    pytest.param(table, version, id=f"{table['id']}@{version['version']}")
    for table in _TABLES
    for version in cast("Sequence[Described]", table["versions"])
]


def _log(golden: Path, table: Described) -> TableLog:
    place = golden / str(table["path"])
    return TableLog(open_store(str(place)), System(), Settings(), name=str(table["id"]))


def _sha256(keys: Sequence[FileKey]) -> str:
    lines = sorted(json.dumps(list(key), separators=(",", ":"), ensure_ascii=False) for key in keys)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _keys_of_rows(snapshot: Snapshot) -> list[FileKey]:
    """The keys as the Arrow form has them, which must be the same files."""
    keys: list[FileKey] = []
    columns = snapshot.files.table.select(["path", "deletion_vector"])
    for row in columns.to_pylist():
        vector = row["deletion_vector"]
        start = vector and f"{vector['storage_type']}{vector['path_or_inline_dv']}"
        offset = vector and vector["offset"]
        keys.append((row["path"], start if offset is None else f"{start}@{offset}"))
    return keys


@pytest.mark.parametrize(("table", "version"), _VERSIONS)
def test_version(golden: Path, table: Described, version: Described) -> None:
    log = _log(golden, table)
    expect = version["expect"]
    number = int(version["version"])
    if expect["status"] == "invalid":
        with pytest.raises(CorruptTable, match=r"_delta_log/\d{20}\.json"):
            log.snapshot(number)
        return
    if expect.get("must_refuse"):
        with pytest.raises(UnsupportedFeature):
            log.snapshot(number)
        return
    snapshot = log.snapshot(number)
    assert snapshot.version == number
    _check_protocol(snapshot, version["protocol"])
    _check_schema(snapshot, table, version)
    assert list(snapshot.partition_columns) == version["partition_columns"]
    assert dict(snapshot.metadata.configuration) == version["configuration"]
    assert snapshot.metadata.id == version["table_id"]
    keys = [add.key for add in snapshot.files.adds()]
    assert len(snapshot.files) == len(keys) == version["num_active_files"]
    assert snapshot.files.totals.deletion_vectors == version["num_active_files_with_dv"]
    assert _sha256(keys) == _sha256(_keys_of_rows(snapshot)) == version["active_files_sha256"]
    assert all(key in snapshot.files for key in keys)
    assert not set(snapshot.tombstones) & set(keys)
    if "txns" in version:
        found = {app_id: txn.version for app_id, txn in snapshot.app_transactions.items()}
        assert found == version["txns"]
    if "domain_metadata" in version:
        domains = {name: item.configuration for name, item in snapshot.domains.items()}
        assert domains == version["domain_metadata"]


@pytest.mark.parametrize("table", [pytest.param(table, id=str(table["id"])) for table in _TABLES])
def test_latest(golden: Path, table: Described) -> None:
    log = _log(golden, table)
    versions = cast("Sequence[Described]", table["versions"])
    if not versions:
        with pytest.raises((InvalidRequest, CorruptTable), match=r"_delta_log"):
            log.latest()
        return
    newest = versions[0]
    if newest["expect"]["status"] == "invalid":
        with pytest.raises(CorruptTable):
            log.latest()
    elif newest["expect"].get("must_refuse"):
        with pytest.raises(UnsupportedFeature):
            log.latest()
    else:
        snapshot = log.latest()
        assert snapshot.version == newest["version"]
        assert _sha256([add.key for add in snapshot.files.adds()]) == newest["active_files_sha256"]
        assert log.latest() is snapshot
        history = log.history()
        assert [row["version"] for row in history] == sorted(
            (int(str(row["version"])) for row in history), reverse=True
        )


def _check_protocol(snapshot: Snapshot, expected: Described) -> None:
    protocol = snapshot.protocol
    assert protocol.min_reader_version == expected["minReaderVersion"]
    assert protocol.min_writer_version == expected["minWriterVersion"]
    for found, name in (
        (protocol.reader_features, "readerFeatures"),
        (protocol.writer_features, "writerFeatures"),
    ):
        assert sorted(found or ()) == sorted(expected.get(name) or ())


def _check_schema(snapshot: Snapshot, table: Described, version: Described) -> None:
    if "schema_error" in version:
        assert snapshot.schema == Struct(())
        return
    expected = version["schema"]
    if expected == "same as latest":
        expected = table["versions"][0]["schema"]
    assert isinstance(snapshot.schema.fields, tuple)
    assert all(isinstance(item, Field) for item in snapshot.schema)
    assert _plain(type_to_json(snapshot.schema)) == _plain(expected)


def _plain(value: Any) -> Any:
    """Schemas as comparable JSON: an absent `metadata` is an empty one."""
    if isinstance(value, dict):
        plain = {key: _plain(item) for key, item in value.items()}
        return {**plain, "metadata": plain.get("metadata", {})} if "nullable" in plain else plain
    return [_plain(item) for item in value] if isinstance(value, list) else value
