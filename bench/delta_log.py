"""Plain Delta logs over files that are there already, so that all engines read the same files.

Owns the JSON of the actions and the Parquet of a checkpoint, as the engines themselves write them:
statistics as JSON, no optional fields. Source: PROTOCOL.md, "Actions", "Checkpoints".
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, dict[str, object]]

PLAIN: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
WITH_VECTORS: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
    }
}
MODIFIED_MS = 1_767_225_600_000  # 2026-01-01
_LONGEST_BOUND = 32
_FILES_PER_ROW_GROUP = 100_000
_TYPES = {
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.string_view(): "string",
    pa.date32(): "date",
}


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file, as its `add` action tells it; `stats` is JSON."""

    path: str
    size: int
    stats: str
    partition: dict[str, str] = field(default_factory=dict)
    vector: dict[str, object] | None = None

    def add(self) -> Action:
        """The action."""
        fields: dict[str, object] = {
            "path": self.path,
            "partitionValues": self.partition,
            "size": self.size,
            "modificationTime": MODIFIED_MS,
            "dataChange": True,
            "stats": self.stats,
        }
        if self.vector is not None:
            fields["deletionVector"] = self.vector
        return {"add": fields}

    def remove(self) -> Action:
        """The action that takes it away again."""
        return {
            "remove": {
                "path": self.path,
                "deletionTimestamp": MODIFIED_MS,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": self.partition,
                "size": self.size,
            }
        }


def metadata(
    schema: pa.Schema, *, partitioned_by: Sequence[str] = (), vectors: bool = False
) -> Action:
    """The table's `metaData`."""
    fields = [
        {"name": column.name, "type": _type(column.type), "nullable": True, "metadata": {}}
        for column in schema
    ]
    names = ",".join(schema.names)
    return {
        "metaData": {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"txlake-bench:{names}")),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partitioned_by),
            "configuration": {"delta.enableDeletionVectors": "true"} if vectors else {},
            "createdTime": MODIFIED_MS,
        }
    }


def commit_info(version: int) -> Action:
    """A commit's `commitInfo`."""
    return {
        "commitInfo": {
            "timestamp": MODIFIED_MS + version,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "isBlindAppend": True,
        }
    }


def write_commit(log: Path, version: int, actions: Iterable[Action]) -> None:
    """Write a commit's file, its `commitInfo` first; the folder is made when it isn't there."""
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(action, separators=(",", ":")) for action in actions]
    first = json.dumps(commit_info(version), separators=(",", ":"))
    (log / f"{version:020}.json").write_text("\n".join([first, *lines]) + "\n", encoding="utf-8")


def write_checkpoint(
    log: Path, version: int, settings: Action, files: Iterable[LoggedFile], count: int
) -> None:
    """Write a classic checkpoint of `count` files and the pointer to it.

    `settings`: the `metaData` action; the protocol is the plain one. It is written in row groups
    of 100,000 files, each the `add` column of that many rows.
    """
    log.mkdir(parents=True, exist_ok=True)
    path = log / f"{version:020}.checkpoint.parquet"
    with pq.ParquetWriter(path, CHECKPOINT, compression="snappy") as writer:
        head = [PLAIN, settings]
        writer.write_table(pa.Table.from_pylist(head, schema=CHECKPOINT))
        for chunk in _chunks(files, _FILES_PER_ROW_GROUP):
            added = _add_column(chunk)
            columns = [
                added if column.name == "add" else pa.nulls(len(chunk), column.type)
                for column in CHECKPOINT
            ]
            writer.write_table(
                pa.Table.from_arrays(columns, schema=CHECKPOINT),
                row_group_size=_FILES_PER_ROW_GROUP,
            )
    pointer = {"version": version, "size": count + 2, "numOfAddFiles": count}
    (log / "_last_checkpoint").write_text(json.dumps(pointer), encoding="utf-8")


def logged(file: Path) -> LoggedFile:
    """A Parquet file with the statistics of its footer."""
    footer = pq.read_metadata(file)
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        groups = [footer.row_group(number).column(index) for number in range(footer.num_row_groups)]
        name = groups[0].path_in_schema
        found = [group.statistics for group in groups]
        nulls[name] = sum(statistics.null_count for statistics in found)
        low[name] = _bound(min(statistics.min for statistics in found), upper=False)
        high[name] = _bound(max(statistics.max for statistics in found), upper=True)
    stats: dict[str, object] = {
        "numRecords": footer.num_rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": nulls,
        "tightBounds": True,
    }
    return LoggedFile(file.name, file.stat().st_size, json.dumps(stats))


def write_live_log(logs: Path, data: Path) -> list[LoggedFile]:
    """A log of one version over the Parquet files of a folder, `live.json`.

    Gives the files in the order of their names.
    """
    paths = sorted(data.glob("*.parquet"))
    files = [logged(path) for path in paths]
    write_log(logs, "live", pq.read_schema(paths[0]), files)
    return files


def write_log(logs: Path, name: str, schema: pa.Schema, files: Iterable[LoggedFile]) -> None:
    """One log of one version, of a table with deletion vectors, as the file `NAME.json`."""
    logs.mkdir(parents=True, exist_ok=True)
    settings = metadata(schema, vectors=True)
    write_commit(logs, 0, [WITH_VECTORS, settings, *(file.add() for file in files)])
    (logs / f"{0:020}.json").replace(logs / f"{name}.json")


def link_table(table: Path, folders: Iterable[Path], log: Path) -> None:
    """Make a table of the folders' files, by hard links where the disk has them, and a log."""
    (table / "_delta_log").mkdir(parents=True)
    for folder in folders:
        link_files(folder, table)
    shutil.copyfile(log, table / "_delta_log" / f"{0:020}.json")


def link_files(source: Path, target: Path) -> None:
    """Links the folder's files into another one, or copies them to another disk."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)


def _type(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _TYPES[arrow]


def _bound(value: object, *, upper: bool) -> object:
    match value:
        case decimal.Decimal():
            return float(value)
        case datetime.date():
            return value.isoformat()
        case str() if len(value) > _LONGEST_BOUND:
            return value[:_LONGEST_BOUND] + ("\x7f" if upper else "")
        case _:
            return value


_TEXTS = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "tags": _TEXTS,
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def _add_column(files: Sequence[LoggedFile]) -> pa.Array:
    values = {
        "path": [file.path for file in files],
        "partitionValues": [list(file.partition.items()) for file in files],
        "size": [file.size for file in files],
        "modificationTime": [MODIFIED_MS] * len(files),
        "dataChange": [False] * len(files),
        "tags": [None] * len(files),
        "stats": [file.stats for file in files],
    }
    kind = CHECKPOINT.field("add").type
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return pa.StructArray.from_arrays(
        [pa.array(values[member.name], member.type) for member in fields], fields=fields
    )


def _chunks(files: Iterable[LoggedFile], size: int) -> Iterator[list[LoggedFile]]:
    chunk: list[LoggedFile] = []
    for file in files:
        chunk.append(file)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
