from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.commit.log_of import add, metadata, remove
from txlake.commit.row_origins import Origins, RowSources
from txlake.commit.row_sources_codec import (
    ROW_SOURCES_TAG,
    KnownSources,
    decode_row_sources,
    encode_row_sources,
    known_sources,
    row_sources_tag,
)
from txlake.commit.table_log import Commit
from txlake.datafiles.origins import NO_FILE
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, CommitInfo, Protocol
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text

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


# Of a line of commits

ON = {"delta.enableChangeDataFeed": "true"}
OLD, NEW = add("old"), add("new")
GONE = remove("old")
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=4)


def base(configuration: dict[str, str] = ON) -> Snapshot:
    return Snapshot.empty("t").apply([PROTOCOL, metadata(configuration), OLD], version=3)


def line(*commits: tuple[Action, ...], info: CommitInfo | None = None) -> list[Commit]:
    return [Commit(4 + number, actions, info, 0) for number, actions in enumerate(commits)]


def moved(path: str, source: Source | None) -> Add:
    tags = None if source is None else {SOURCES_TAG: sources_text([source])}
    return msgspec.structs.replace(add(path, tags=tags), data_change=False)


def test_a_commit_without_sources_has_no_tag() -> None:
    assert row_sources_tag({}) == {}


def test_the_sources_of_all_commits_are_known() -> None:
    run = Source(path="old", vector_id=None, first=0, rows=1)
    info = CommitInfo({"tags": row_sources_tag({"new": ORIGINS})})
    found = known_sources(
        base(), [*line((GONE, NEW), info=info), *line((moved("packed", run), OLD))]
    )
    assert isinstance(found.row_sources["new"], Origins)
    assert found.row_sources["packed"] == (run,)
    assert (found.untracked_files, found.has_gaps) == (frozenset(), False)


def test_only_a_new_file_says_where_its_rows_are_from() -> None:
    """Not one that is listed again, of this line or of before."""
    again = line((NEW,), (moved("new", None), moved("old", None)))
    assert known_sources(base(), again) == KnownSources({}, frozenset(), has_gaps=False)
    assert known_sources(base(), line((moved("new", None),))).untracked_files == {"new"}


@pytest.mark.parametrize("info", [None, CommitInfo({}), CommitInfo({"tags": {"a": "b"}})])
def test_a_commit_need_not_have_sources(info: CommitInfo | None) -> None:
    assert known_sources(base(), line((GONE, NEW), info=info)).row_sources == {}


def test_changes_without_a_feed_leave_gaps() -> None:
    on, off = metadata(ON), metadata({})
    assert not known_sources(base(), line((GONE, NEW))).has_gaps
    assert known_sources(base({}), line((GONE, NEW), (on,))).has_gaps
    assert known_sources(base(), line((off,), (GONE, NEW), (on,))).has_gaps
    assert not known_sources(base(), line((off,), (NEW,), (GONE,), (on,))).has_gaps
    assert not known_sources(base({}), line((remove("old"), moved("new", None)), (on,))).has_gaps
    assert not known_sources(base({}), line((on, GONE, NEW))).has_gaps


@pytest.mark.parametrize("text", ["?", "AAAA"])
def test_a_damaged_tag_is_an_error_that_names_the_version(text: str) -> None:
    info = CommitInfo({"tags": {ROW_SOURCES_TAG: text}})
    with pytest.raises(CorruptTable, match=r"^t, version 4: the sources of a commit's rows"):
        known_sources(base(), line((GONE, NEW), info=info))
