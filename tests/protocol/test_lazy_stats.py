from __future__ import annotations

import io
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commit.log_of import with_damaged_stats
from txlake.errors import CorruptTable
from txlake.protocol import checkpoints, lazy_stats
from txlake.protocol.checkpoints import CheckpointRows, read_checkpoint
from txlake.protocol.lazy_stats import DecodedStats, LazyStats, Mask, ParquetStats

_GROUP = 4
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("of.others", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("stats_parsed", pa.struct([("numRecords", pa.int64())])),
    ]
)


def _checkpoint(pattern: str, *, statistics: bool = True) -> bytes:
    """Rows in groups of four: `a` an add with statistics, `p` with parsed ones, `n` with none."""
    rows: list[dict[str, object] | None] = [
        None
        if letter == "-"
        else {
            "path": f"f{at}",
            "partitionValues": [],
            "size": 1,
            "tags": [] if at % 2 else None,
            "of.others": at,
            "modificationTime": 1,
            "dataChange": True,
            "stats": f'{{"numRecords":{at}}}' if letter == "a" else None,
            "stats_parsed": {"numRecords": at} if letter == "p" else None,
        }
        for at, letter in enumerate(pattern)
    ]
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"add": pa.array(rows, _ADD)}),
        sink,
        row_group_size=_GROUP,
        write_statistics=statistics,
    )
    return sink.getvalue()


def _read(data: bytes) -> CheckpointRows:
    return read_checkpoint(data, file="c.parquet")


def _texts(pattern: str) -> list[str | None]:
    return [
        None if letter == "n" else f'{{"numRecords":{at}}}'
        for at, letter in enumerate(pattern)
        if letter != "-"
    ]


_PATTERNS = (
    "aaaaaaaaa",
    "--aa-aa--",
    "a-a-a-a-a",
    "---------",
    "papnp-a-n",
    "ppppppppp",
    "nnnnnnnnn",
)


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_rows_have_their_own_statistics_whichever_are_asked_for(pattern: str) -> None:
    expected = _texts(pattern)
    rows = _read(_checkpoint(pattern))
    assert rows.columns.num_rows == rows.stats.rows == len(expected)
    assert LazyStats([rows.stats]).column().to_pylist() == expected
    random = np.random.default_rng(7)
    for _ in range(20):
        keep: Mask = random.random(len(expected)) < random.random()
        kept = list(itertools.compress(expected, keep.tolist()))
        assert LazyStats([rows.stats]).filter(keep).to_pylist() == kept
        several = LazyStats([rows.stats, DecodedStats(pa.chunked_array([["x", None]])), rows.stats])
        every = np.concatenate([keep, [True, False], ~keep])
        others = list(itertools.compress(expected, (~keep).tolist()))
        assert several.filter(every).to_pylist() == [*kept, "x", *others]


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_a_file_need_not_say_which_of_its_columns_are_empty(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _read(_checkpoint(pattern))
    silent = _read(_checkpoint(pattern, statistics=False))
    monkeypatch.setattr(checkpoints, "_CHUNKS_LOOKED_AT_MAX", 0)
    not_asked = _read(_checkpoint(pattern))
    extras = [json.loads(text) for text in rows.columns["extra"].to_pylist()]
    assert extras == [{"of.others": at} for at, letter in enumerate(pattern) if letter != "-"]
    for other in (silent, not_asked):
        assert other.columns.equals(rows.columns)
        assert LazyStats([other.stats]).column().to_pylist() == _texts(pattern)


def test_only_the_groups_with_wanted_rows_are_decoded() -> None:
    rows = _read(with_damaged_stats(_checkpoint("aaaaaaaaa"), row_groups=[1]))
    stats = LazyStats([rows.stats])
    keep = np.array([True, False, False, True, False, False, False, False, True])
    assert stats.filter(keep).to_pylist() == [_texts("aaaaaaaaa")[at] for at in (0, 3, 8)]
    keep[5] = True
    with pytest.raises(CorruptTable, match=r"^c\.parquet: not a readable checkpoint"):
        stats.filter(keep)
    with pytest.raises(CorruptTable, match=r"^c\.parquet: not a readable checkpoint"):
        stats.column()


def test_damage_is_mended_where_the_texts_are_known_from_elsewhere() -> None:
    rows = _read(with_damaged_stats(_checkpoint("aaaaaaaaa"), row_groups=[1]))
    other = [f"other {at}" for at in range(9)]
    errors: list[CorruptTable] = []

    def instead(error: CorruptTable) -> pa.ChunkedArray:
        errors.append(error)
        return pa.chunked_array([other[:3], other[3:]])

    stats = LazyStats([rows.stats], fallback=instead)
    # Those that were given before the damage was met are not given again.
    first = _texts("aaaaaaaaa")[:4]
    assert [text for chunk in stats.chunks() for text in chunk.to_pylist()] == [*first, *other[4:]]
    assert stats.column().to_pylist() == other
    assert stats.filter(np.arange(9) > 6).to_pylist() == other[7:]
    assert len(errors) == 1
    fresh = LazyStats([rows.stats], fallback=instead)
    assert fresh.column().to_pylist() == [*first, *other[4:]]
    assert fresh.column() is fresh.column()


def test_what_is_used_often_is_kept() -> None:
    stats = LazyStats([_read(_checkpoint("aaaa")).stats])
    keep = np.array([True, False, False, False])
    for _ in range(10):
        assert stats.filter(keep).to_pylist() == ['{"numRecords":0}']
    assert stats.column() is stats.column()


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _read(_checkpoint("aaaa"))
    assert isinstance(rows.stats, ParquetStats)
    size = rows.stats.decoded_bytes()
    assert sum(len(text or "") for text in _texts("aaaa")) <= size <= 1_000
    keep = np.array([True, False, False, False])
    for limit, is_kept in ((size, True), (size - 1, False)):
        monkeypatch.setattr(lazy_stats, "_KEPT_BYTES_MAX", limit)
        stats = LazyStats([rows.stats])
        for _ in range(10):
            assert stats.filter(keep).to_pylist() == ['{"numRecords":0}']
        assert isinstance(stats._source, DecodedStats) is is_kept


def test_columns_do_not_wait_for_statistics() -> None:
    rows = _read(with_damaged_stats(_checkpoint("aaaa")))
    assert rows.columns["path"].to_pylist() == ["f0", "f1", "f2", "f3"]
    assert "stats" not in rows.columns.column_names
