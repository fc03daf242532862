"""What sinks of streams have to hold: every row once, in the order of its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import txlake
from tests.lake.streaming.engine import BRANCH
from tests.lake.streaming.worker import COUNTS, PATH_SINK, ROWS
from txlake.lake.read_versions import named_table
from txlake.protocol.paths import decode_path
from txlake.storage import local_path

KEYS = 3


def versions(table: Path) -> Iterator[pa.Table]:
    """The rows that each version of an append-only table added, from the files alone."""
    log = txlake.Log(table)
    newest = log.snapshot().version
    known: set[str] = set()
    for version in range(newest + 1):
        paths = log.snapshot(version=version).files()["path"].to_pylist()
        new = [path for path in paths if path not in known]
        known.update(new)
        parts = [pq.read_table(table / decode_path(path), partitioning=None) for path in new]
        if parts:
            yield pa.concat_tables(parts)


def check_rows(table: Path, rows: int) -> None:
    """Every number once; those of a key in later versions are larger."""
    seen: Counter[int] = Counter()
    newest = dict.fromkeys(range(KEYS), -1)
    for added in versions(table):
        numbers, keys = added["n"].to_pylist(), added["key"].to_pylist()
        seen.update(numbers)
        for key in set(keys):
            own = [n for n, k in zip(numbers, keys, strict=True) if k == key]
            assert min(own) > newest[key], f"{table}: {min(own)} came after {newest[key]}"
            newest[key] = max(own)
    twice = sorted(n for n, count in seen.items() if count > 1)
    lost = sorted(set(range(rows)) - set(seen))
    assert not twice, f"{table}: rows {twice[:10]} are there more than once"
    assert not lost, f"{table}: rows {lost[:10]} of {rows} are lost"
    assert len(seen) == rows


def check_counts(rows: Path, counts: Path) -> None:
    """Each transaction wrote as many rows as it counted."""
    written = [one.num_rows for one in versions(rows)]
    counted = [sum(one["n"].to_pylist()) for one in versions(counts)]
    assert written == counted, f"{written} rows, counted {counted}"


def check_sink(place: Path, sink: str, rows: int) -> None:
    """Raise AssertionError unless a sink of the engine (engine.py) has every row once."""
    if sink == ROWS:
        check_rows(_folder(place, ROWS), rows)
        check_counts(_folder(place, ROWS), _folder(place, COUNTS))
    else:
        check_rows(place / ("" if sink == PATH_SINK else "lake") / sink, rows)


def check_branch_sink(place: Path, sink: str, rows: int) -> None:
    """Raise AssertionError unless a table of the branch has every row once, on the branch and,
    once that is published, on main.
    """
    with txlake.connect(str(place / "lake")) as lake:
        own = lake.branch(BRANCH)
        _check_table(own, sink, rows)
        own.publish()
        _check_table(lake, sink, rows)


def _check_table(session: txlake.LakeSession, table: str, rows: int) -> None:
    snapshot = session._session.snapshot(named_table(table))
    handle = session._session.engine.find(named_table(table), "default")
    assert handle is not None
    files = [
        pq.read_table(f"{local_path(handle.store.url)}/{add.path}") for add in snapshot.files.adds()
    ]
    assert sorted(pa.concat_tables(files)["n"].to_pylist()) == list(range(rows))


def _folder(place: Path, table: str) -> Path:
    database, name = table.split(".")
    return place / "lake" / f"{database}.db" / name
