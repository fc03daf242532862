"""Tables made hostile by chance: a good one with some of its log changed, from a seed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.security import hostile
from txlake.commit.checkpointing import write_checkpoint
from txlake.lake.log import Log

# Values where another is expected.
_LEAVES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    1e308,
    "",
    "x",
    "9" * 50,
    "1" * 5_000,
    "../x",
    "file:///etc/passwd",
    "\ud800",
    "a\0b",
    "%",
    "%zz",
    "2020-13-45",
    "interval 9999999999999 weeks",
    "decimal(99,99)",
    "{",
    "[]",
    '{"type":"struct"}',
    '{"type":"struct","fields":[{"name":"id","type":"map"}]}',
    [],
    {},
    [[]],
    {"type": "array"},
    {"": ""},
)
_NAMES = ("path", "size", "add", "remove", "metaData", "version", "type", "name", "\u2205extra")


def good_table(folder: Path) -> Path:
    """A table with commits, vectors, a checkpoint, checksums and a hint."""
    size = hostile.write_rows(folder / "a.parquet", "a")
    hostile.write_rows(folder / "p=1" / "b.parquet", "b")
    sizes = hostile.write_vector(folder / hostile.VECTOR_NAME)
    vector = hostile.relative_vector("", sizes)
    hostile.table(
        folder,
        hostile.add("a.parquet", size),
        hostile.add("p=1/b.parquet", size, vector),
        {"txn": {"appId": "app", "version": 1, "lastUpdated": 1}},
    )
    log = Log(str(folder))
    write_checkpoint(log._log)
    (file,) = (add for add in log._log.latest().files.adds() if add.path == "a.parquet")
    transaction = log.start_transaction()
    transaction.read()
    removed = {"path": file.path, "deletionTimestamp": 1, "dataChange": True}
    transaction.commit([{"remove": removed}, hostile.add("c.parquet", size)], operation="WRITE")
    return folder


def mutated(good: Path, folder: Path, seed: int) -> Path:
    """A copy of the table with one to three changes in its log."""
    chance = Random(seed)
    shutil.copytree(good, folder)
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and ("_delta_log" in path.parts or path.suffix == ".bin")
    )
    for _ in range(chance.randint(1, 3)):
        file = chance.choice(files)
        if file.suffix in {".json", ".crc"} and chance.random() < 0.7:
            file.write_bytes(_json_changed(file.read_bytes(), chance))
        elif file.suffix == ".parquet" and chance.random() < 0.5:
            _rows_changed(file, chance)
        else:
            file.write_bytes(_bytes_changed(file.read_bytes(), chance))
    return folder


def _bytes_changed(data: bytes, chance: Random) -> bytes:
    if not data:
        return b"{"
    at, length = chance.randrange(len(data)), chance.randint(1, 16)
    match chance.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + chance.randbytes(length) + data[at + length :]
        case 2:
            return data[:at] + data[at + length :]
        case 3:
            return data[:at] + data[max(0, at - length) :]
        case _:
            flipped = data[at] ^ (1 << chance.randrange(8))
            return data[:at] + bytes([flipped]) + data[at + 1 :]


def _json_changed(data: bytes, chance: Random) -> bytes:
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return _bytes_changed(data, chance)
    lines[at] = json.dumps(_changed(value, chance)).encode()
    if chance.random() < 0.1:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return b"\n".join(lines)


def _changed(value: Any, chance: Random) -> Any:
    """The value with something in it replaced, removed or renamed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value))
        match chance.randrange(8):
            case 0:
                return {key: item for key, item in value.items() if key != name}
            case 1:
                return {**value, chance.choice(_NAMES): value[name]}
            case _:
                return {**value, name: _changed(value[name], chance)}
    if isinstance(value, str) and value.startswith("{") and chance.random() < 0.8:
        try:
            return json.dumps(_changed(json.loads(value), chance))
        except ValueError:
            return value
    if isinstance(value, list) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(_LEAVES)


def _rows_changed(file: Path, chance: Random) -> None:
    """A checkpoint with a value, a column or a type changed, and whole as a file."""
    try:
        table = pq.read_table(file)
        rows = table.to_pylist()
        at = chance.randrange(len(rows))
        rows[at] = _changed(rows[at], chance)
        schema = table.schema if chance.random() < 0.5 else None
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, IndexError):
        file.write_bytes(_bytes_changed(file.read_bytes(), chance))
