from __future__ import annotations

import json

import pytest

from txlake.protocol.last_checkpoint import (
    Hint,
    HintedCheckpoint,
    canonical_form,
    checksum_of,
    read_hint,
    write_hint,
)

# The sample that PROTOCOL.md, "JSON checksum", gives for implementations.
_SAMPLE = json.loads(
    """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj",
        "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
)


def test_checksum_of_the_specification() -> None:
    assert canonical_form(_SAMPLE).startswith('"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3"')
    assert checksum_of(_SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_a_written_hint_is_read() -> None:
    hint = Hint(
        version=12,
        actions=7,
        parts=2,
        size_bytes=100,
        add_files=5,
        v2_path="x.json",
        v2_size_bytes=9,
        v2_modified_ms=8,
    )
    data = write_hint(hint)
    assert read_hint(data) == HintedCheckpoint(12, None)
    value = json.loads(data)
    assert value["size"] == 7
    assert value["parts"] == 2
    assert value["v2Checkpoint"] == {"path": "x.json", "sizeInBytes": 9, "modificationTime": 8}
    assert "parts" not in json.loads(write_hint(Hint(version=1, actions=1)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1]",
        b"{}",
        b'{"version":"1"}',
        b'{"version":true}',
        b'{"version":-1}',
        b'{"version":1,"version":2}',
        b'{"version":1,"size":2,"checksum":"0"}',
        write_hint(Hint(version=1, actions=1)).replace(b'"size":1', b'"size":2'),
        write_hint(Hint(version=1, actions=1))[:-4],
    ],
)
def test_a_damaged_hint_is_no_hint(data: bytes) -> None:
    assert read_hint(data) is None


def test_a_hint_without_checksum_is_taken() -> None:
    path = "_delta_log/00000000000000000003.checkpoint.parquet"
    assert read_hint(b'{"version":3,"size":4}') == HintedCheckpoint(3, path)


def _read(**fields: object) -> HintedCheckpoint | None:
    return read_hint(json.dumps({"version": 3, "size": 4, **fields}).encode())


def test_a_hint_names_the_checkpoint_of_its_version() -> None:
    name = "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    assert _read(v2Checkpoint={"path": name}) == HintedCheckpoint(3, f"_delta_log/{name}")
    assert _read(parts=2) == HintedCheckpoint(3, None)
    for wrong in (name.replace("3", "4", 1), "../x", "", None, "00000000000000000003.json"):
        assert _read(v2Checkpoint={"path": wrong}) == HintedCheckpoint(3, None)
