"""What other engines read from a table that txlake wrote: the same, at every version.

`check_table` is given one folder, and asks delta-rs; `check_newest` asks DuckDB's Delta extension.
Ours is asked through callables, so that this module needs no part of txlake to be sound itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

ReadRows = Callable[[Path, int], pa.Table]
"""Folder and version to the rows, as txlake reads them."""

ReadFiles = Callable[[Path, int], Iterable[str]]
"""Folder and version to the active data files, paths as txlake gives them."""

# Reader features of the specification that delta-rs refuses by name. A table with one of them is
# readable elsewhere, so that is no fault of ours.
DELTA_RS_LACKS = frozenset(
    {
        "TypeWidening",
        "TypeWideningPreview",
        "VacuumProtocolCheck",
        "VariantShredding",
        "VariantShreddingPreview",
    }
)

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet|(\d{20})\.checkpoint\..*json")
_REFUSED = re.compile(r"Unsupported table features required: \[([^\]]*)\]")
_GONE_VECTOR = re.compile(r"File not found: \S*deletion_vector_\S+\.bin")


# What DuckDB's extension, or the Delta kernel inside it, says of what it lacks, though the table is
# readable by the specification.
DUCKDB_LACKS = re.compile(
    r"[Uu]nsupported|[Nn]ot (?:yet )?(?:supported|implemented)|typeWidening|variant"
)


class Disagreement(AssertionError):
    """Two engines read one version of a table differently."""


def delta_tables(root: Path) -> Iterator[Path]:
    """The folders below `root`, itself included, that hold a Delta log with a commit in it.

    The log of a branch, which is within its table's, makes no table for engines that don't know it.
    """
    for log in sorted(root.rglob("_delta_log")):
        is_branch = "_delta_log" in log.relative_to(root).parent.parts
        if (
            log.is_dir()
            and not is_branch
            and any(_COMMIT.fullmatch(entry.name) for entry in log.iterdir())
        ):
            yield log.parent


Versions = Callable[[Path], Collection[int]]
"""Which versions of the table in a folder."""


def readable_versions(table: Path) -> list[int]:
    """The versions that the files of the log still give, ascending."""
    names = [entry.name for entry in (table / "_delta_log").iterdir()]
    commits = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
    starts = _checkpoints(table)
    if commits and commits[0] == 0:
        starts.append(0)
    if not starts:
        return commits[-1:]
    return sorted({v for v in commits if v >= min(starts)} | {min(starts)})


def marked_versions(table: Path) -> set[int]:
    """The newest version, and those with a checkpoint: what the log is read by from then on."""
    readable = readable_versions(table)
    return {readable[-1], *_checkpoints(table)} & set(readable)


def _checkpoints(table: Path) -> list[int]:
    names = [entry.name for entry in (table / "_delta_log").iterdir()]
    return [int(f[1] or f[2]) for name in names if (f := _CHECKPOINT.fullmatch(name))]


def check_table(
    table: Path,
    read_rows: ReadRows,
    read_files: ReadFiles | None = None,
    *,
    rows_at: Versions = readable_versions,
) -> None:
    """Compare delta-rs with txlake at every version of the table in this folder.

    The active files are compared first, then the rows at the versions of `rows_at`, unless a file
    of that version is gone (VACUUM removed it, or a test of the log alone never wrote it): nobody
    can read those.

    Raises:
        Disagreement: names the folder, the version and what differs, with an example.
    """
    compared = rows_at(table)
    for version in readable_versions(table):
        try:
            other = DeltaTable(str(table), version=version)
            files = _files_of(other)
            if read_files is not None:
                _same_files(table, version, files, read_files(table, version))
            if version in compared and _all_there(table, other):
                _same_rows(table, version, _rows_of(other), read_rows(table, version))
        except DeltaError as error:
            is_old = version < readable_versions(table)[-1]
            if not _is_a_lack(error) and not (is_old and _GONE_VECTOR.search(str(error))):
                raise Disagreement(
                    f"{table} version {version}: delta-rs can't read it: {error}"
                ) from error


class DuckDB:
    """DuckDB with its Delta extension, in a process and an environment of its own.

    `python` is that environment's (tools/python_peer.sh duckdb-delta). Close it after use.
    """

    def __init__(self, python: Path) -> None:
        worker = Path(__file__).with_name("duckdb_worker.py")
        self._folder = tempfile.TemporaryDirectory(prefix="txlake-duckdb-")
        self._process = subprocess.Popen(
            [str(python), str(worker)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rows(self, table: Path) -> pa.Table | str:
        """The rows of the table's newest version; or why they can't be read."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        target = Path(self._folder.name) / "rows.parquet"
        print(json.dumps([str(table), str(target)]), file=self._process.stdin, flush=True)
        problem: str | None = json.loads(self._process.stdout.readline())
        return pq.read_table(target) if problem is None else problem

    def close(self) -> None:
        """End the process."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._folder.cleanup()


def check_newest(table: Path, duckdb: DuckDB, read_rows: ReadRows) -> None:
    """Compare DuckDB with txlake at the newest version of the table in this folder.

    Raises Disagreement, as `check_table` does.
    """
    version = readable_versions(table)[-1]
    try:
        other = DeltaTable(str(table), version=version)
        if not _all_there(table, other) or not other.schema().fields:
            return
        if '"variant"' in other.schema().to_json():
            return  # DuckDB hands its rows over as Parquet, with variants shredded
    except DeltaError:
        return  # which `check_table` judges
    found = duckdb.rows(table)
    if not isinstance(found, str):
        _same_rows(table, version, found, read_rows(table, version), "DuckDB")
    elif DUCKDB_LACKS.search(found) is None:
        raise Disagreement(f"{table} version {version}: DuckDB can't read it: {found}")


def _is_a_lack(error: DeltaError) -> bool:
    refused = _REFUSED.search(str(error))
    return refused is not None and set(refused[1].split(", ")) <= DELTA_RS_LACKS


def _files_of(other: DeltaTable) -> list[str]:
    return [str(path) for path in pa.table(other.get_add_actions()).column("path").to_pylist()]


def _all_there(table: Path, other: DeltaTable) -> bool:
    for uri in other.file_uris():
        path = Path(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)
        if not path.exists() and not (table / path).exists():
            return False
    return True


def _rows_of(other: DeltaTable) -> pa.Table:
    query = QueryBuilder().register("t", other)
    names = ", ".join('"' + field.name.replace('"', '""') + '"' for field in other.schema().fields)
    return pa.table(query.execute(f"SELECT {names} FROM t").read_all())


def _same_files(table: Path, version: int, theirs: Iterable[str], ours: Iterable[str]) -> None:
    expected, found = Counter(map(_decoded, theirs)), Counter(map(_decoded, ours))
    if expected != found:
        raise Disagreement(
            f"{table} version {version}: the active files differ: delta-rs alone has "
            f"{sorted(expected - found)}, txlake alone has {sorted(found - expected)}"
        )


def _decoded(path: str) -> str:
    # Engines differ in whether they hand out the log's encoding: compare what can't be decoded on.
    while (once := unquote(path)) != path:
        path = once
    return path


def _same_rows(
    table: Path, version: int, theirs: pa.Table, ours: pa.Table, who: str = "delta-rs"
) -> None:
    if theirs.column_names != ours.column_names:
        raise Disagreement(
            f"{table} version {version}: {who} has the columns {theirs.column_names}, "
            f"txlake has {ours.column_names}"
        )
    expected, found = Counter(_canonical(theirs)), Counter(_canonical(ours))
    if expected != found:
        alone, extra = list((expected - found).elements()), list((found - expected).elements())
        raise Disagreement(
            f"{table} version {version}: {who} reads {theirs.num_rows} rows, txlake "
            f"{ours.num_rows}; {who} alone has {len(alone)}, such as {alone[:3]}; txlake alone "
            f"has {len(extra)}, such as {extra[:3]}"
        )


def _canonical(table: pa.Table) -> list[str]:
    """Each row as text that is equal just when the values are, whatever Arrow type carries them."""
    columns = [_integers(column).to_pylist() for column in table.columns]
    if not columns:
        return ["()"] * table.num_rows
    return [repr(tuple(map(_plain, row))) for row in zip(*columns, strict=True)]


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Python's datetime ends at the year 9999, and nanoseconds need pandas; integers do neither.
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.date32()).cast(pa.int32())
    return column


def _plain(value: object) -> object:
    match value:
        case {"value": bytes() as held, "metadata": bytes() as names, **rest} if not rest:
            return {"value": held, "metadata": names}  # a variant, its parts in any order
        case dict():
            return {name: _plain(field) for name, field in value.items()}
        case list() if value and all(isinstance(entry, tuple) for entry in value):  # a map
            return sorted(repr((_plain(key), _plain(item))) for key, item in value)
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
