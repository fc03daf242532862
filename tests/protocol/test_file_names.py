from __future__ import annotations

import pytest

from txlake.protocol.file_names import (
    BRANCHES_FOLDER,
    LOG_FOLDER,
    VERSIONS_END,
    Checksum,
    ClassicCheckpoint,
    CommitFile,
    Compaction,
    LastCheckpoint,
    LogFile,
    MultiPartCheckpoint,
    StagedCommit,
    V2Checkpoint,
    commit_path,
    listing_start,
    log_path,
    parse_name,
    sidecar_path,
    version_of,
)

_V = "00000000000000000010"
_ID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (f"{_V}.json", CommitFile(10)),
        (f"{_V}.crc", Checksum(10)),
        (f"{_V}.checkpoint.parquet", ClassicCheckpoint(10)),
        (f"{_V}.checkpoint.0000000002.0000000003.parquet", MultiPartCheckpoint(10, 2, 3)),
        (f"{_V}.checkpoint.{_ID}.json", V2Checkpoint(10, _ID, "json")),
        (f"{_V}.checkpoint.{_ID}.parquet", V2Checkpoint(10, _ID, "parquet")),
        (f"{_V}.00000000000000000012.compacted.json", Compaction(10, 12)),
        ("_last_checkpoint", LastCheckpoint()),
        (f"_staged_commits/{_V}.{_ID}.json", StagedCommit(10, _ID)),
    ],
)
def test_names(name: str, file: LogFile) -> None:
    assert parse_name(name) == file
    assert log_path(file) == f"_delta_log/{name}"
    assert parse_name(log_path(file)) == file


@pytest.mark.parametrize(
    "name",
    [
        "",
        "10.json",
        f"{_V}.json.tmp",
        f".{_V}.json",
        f".{_V}.json.crc",
        f"{_V}.parquet",
        f"{_V}.checkpoint.0000000000.0000000003.parquet",
        f"{_V}.checkpoint.0000000004.0000000003.parquet",
        f"{_V}.{_V}.compacted.json",
        "99999999999999999999.json",
        f"_sidecars/{_ID}.parquet",
        f".tmp/{_V}.json",
        "_commits/x.json",
        f"_branches/{_ID}/_delta_log/{_V}.json",
    ],
)
def test_other_names_are_none_of_ours(name: str) -> None:
    assert parse_name(name) is None
    assert version_of(name) == -1


@pytest.mark.parametrize(
    ("file", "version"),
    [
        (CommitFile(10), 10),
        (Checksum(10), 10),
        (ClassicCheckpoint(10), 10),
        (MultiPartCheckpoint(10, 2, 3), 10),
        (V2Checkpoint(10, _ID, "json"), 10),
        (Compaction(10, 12), 12),
        (LastCheckpoint(), -1),
        (StagedCommit(10, _ID), -1),
    ],
)
def test_the_version_of_a_file(file: LogFile, version: int) -> None:
    assert version_of(log_path(file)) == version
    assert version == -1 or LOG_FOLDER < log_path(file) < VERSIONS_END < BRANCHES_FOLDER


def test_a_listing_from_a_version_holds_all_of_its_files() -> None:
    paths = [commit_path(9), commit_path(10), log_path(ClassicCheckpoint(10)), commit_path(11)]
    assert [path > listing_start(10) for path in paths] == [False, True, True, True]


def test_sidecars_lie_in_their_folder_whatever_path_names_them() -> None:
    assert sidecar_path("a.parquet") == "_delta_log/_sidecars/a.parquet"
    assert sidecar_path("file:/t/_delta_log/_sidecars/a.parquet") == sidecar_path("a.parquet")
