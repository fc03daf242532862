from __future__ import annotations

import msgspec
import numpy as np
import pytest

from txlake.commit.row_origins import Origins, RowSources
from txlake.commit.row_sources_codec import decode_row_sources, encode_row_sources
from txlake.datafiles.origins import NO_FILE
from txlake.errors import CorruptTable
from txlake.protocol.sources import Source

ORIGINS = Origins(
    sources=("a", "p=%C3%BC/b"),
    files=np.array([1, NO_FILE, 0, 0], np.int32),
    rows=np.array([2**40, 0, 7, 3], np.int64),
    is_update=True,
)
RUNS = (
    Source(path="a", vector_id="uabc@1", first=0, rows=3),
    Source(path="b", vector_id=None, first=0, rows=2, positions_id="uxyz@5"),
)
SOURCES: dict[str, RowSources] = {"f": ORIGINS, "g": RUNS}


def test_row_sources_come_back_as_they_were() -> None:
    found = decode_row_sources(encode_row_sources(SOURCES), file="x")
    assert found.keys() == SOURCES.keys()
    assert found["g"] == RUNS
    origins = found["f"]
    assert isinstance(origins, Origins)
    assert (origins.sources, origins.is_update) == (ORIGINS.sources, True)
    assert origins.files.tolist() == ORIGINS.files.tolist()
    assert origins.rows.tolist() == ORIGINS.rows.tolist()
    assert origins.files.dtype == np.int32
    assert origins.rows.dtype == np.int64


def test_nothing_comes_back_as_nothing() -> None:
    assert decode_row_sources(encode_row_sources({}), file="x") == {}


def changed(**parts: object) -> bytes:
    """The record with other parts."""
    record = msgspec.msgpack.decode(encode_row_sources(SOURCES))
    return msgspec.msgpack.encode(record | parts)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(encode_row_sources(SOURCES)[:-1], id="cut"),
        pytest.param(changed(version=2), id="version"),
        pytest.param(changed(more=1), id="a further part"),
        pytest.param(changed(runs={"g": "?"}), id="runs"),
        pytest.param(changed(origins={"f": [["a"], True, b"?"]}), id="origins"),
        pytest.param(changed(origins={"f": [["a"], True]}), id="a missing part"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(CorruptTable, match=r"^_sources/7: the sources of a commit's"):
        decode_row_sources(data, file="_sources/7")
