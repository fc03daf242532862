"""Logs that are made to hurt their reader: each a way to write one, and what reading it ends in."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests.security import hostile
from txlake.protocol.deletion_vectors import z85_encode
from txlake.protocol.roaring import encode_bitmap

Case = Callable[[Path], object]
_DEEP = 200_000
_BIG = 20_000_000


def _log(folder: Path) -> Path:
    return folder / "_delta_log"


def _commit(folder: Path, text: str | bytes, version: int = 1) -> None:
    """A table with one file, and a next commit of this text."""
    size = hostile.write_rows(folder / "own.parquet", "mine")
    hostile.table(folder, hostile.add("own.parquet", size))
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    (_log(folder) / f"{version:020}.json").write_bytes(data)


def _changed(action: Mapping[str, Any], **fields: object) -> str:
    """The action as a line, with some of its fields changed."""
    [(name, old)] = action.items()
    return json.dumps({name: {**old, **fields}}) + "\n"


ADD = hostile.add("a.parquet", 1)
METADATA: dict[str, Any] = {
    "metaData": {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": hostile.SCHEMA,
        "partitionColumns": [],
        "configuration": {},
    }
}


def _vector(folder: Path, **fields: object) -> None:
    data = encode_bitmap(BitMap64([1]))
    inline = {
        "storageType": "i",
        "pathOrInlineDv": z85_encode(data),
        "sizeInBytes": len(data),
        "cardinality": 1,
    }
    _commit(folder, _changed(ADD, deletionVector={**inline, **fields}))


def _bitmap(data: bytes, cardinality: int) -> dict[str, object]:
    return {
        "pathOrInlineDv": z85_encode(data),
        "sizeInBytes": len(data),
        "cardinality": cardinality,
    }


def _filled(highs: int) -> bytes:
    """A bitmap that names 2^32 positions for each of its high halves, in few bytes each."""
    one = BitMap64(range(0))
    one.add_range(0, 1 << 32)
    portable = encode_bitmap(one)
    part = portable[4 + 8 + 4 :]
    parts = [struct.pack("<I", high) + part for high in range(highs)]
    return portable[:4] + struct.pack("<Q", highs) + b"".join(parts)


def _native(count: int, rest: bytes) -> bytes:
    return struct.pack("<Ii", 1681511376, count) + rest


def _vector_file(folder: Path, data: bytes, **fields: object) -> None:
    (folder / "x").mkdir(parents=True)
    (folder / hostile.VECTOR_NAME).write_bytes(data)
    sizes = {"offset": 1, "sizeInBytes": 40, "cardinality": 1, **fields}
    vector = hostile.relative_vector("", sizes)
    _commit(folder, _changed(ADD, deletionVector=vector))


def _schema(text: str) -> str:
    return _changed(METADATA, schemaString=text)


def _nested(depth: int) -> str:
    start = '{"type":"array","containsNull":true,"elementType":'
    inner = start * depth + '"long"' + "}" * depth
    return (
        '{"type":"struct","fields":[{"name":"id","nullable":true,"metadata":{},"type":'
        + inner
        + "}]}"
    )


JSON: dict[str, Case] = {
    "nested deeply": lambda f: _commit(f, '{"add":' + "[" * _DEEP + "]" * _DEEP + "}"),
    "nested deeply, unknown": lambda f: _commit(f, '{"x":' + '{"x":' * _DEEP + "1" + "}" * _DEEP),
    "nested deeply, commitInfo": lambda f: _commit(
        f, '{"commitInfo":{"x":' + "[" * _DEEP + "]" * _DEEP + "}}"
    ),
    "nested deeply, never closed": lambda f: _commit(f, "[" * _DEEP),
    "huge integer": lambda f: _commit(f, _changed(ADD, size=10**400)),
    "integer of 100,000 digits": lambda f: _commit(
        f, _changed(ADD).replace('"size": 1', f'"size": {"1" * 100_000}')
    ),
    "size beyond a long": lambda f: _commit(f, _changed(ADD, size=2**63)),
    "negative size": lambda f: _commit(f, _changed(ADD, size=-1)),
    "time beyond a long": lambda f: _commit(f, _changed(ADD, modificationTime=-(2**64))),
    "row id beyond a long": lambda f: _commit(f, _changed(ADD, baseRowId=2**70)),
    "size that is no number": lambda f: _commit(f, _changed(ADD, size=float("nan"))),
    "size that is infinite": lambda f: _commit(f, _changed(ADD, size=float("inf"))),
    "half a character": lambda f: _commit(f, _changed(ADD, path="\ud800")),
    "half a character, raw": lambda f: _commit(f, b'{"add":{"path":"\xed\xa0\x80"}}'),
    "half a character in what is unknown": lambda f: _commit(f, _changed(ADD, x="\udfff")),
    "path with a NUL": lambda f: _commit(f, _changed(ADD, path="a\0b")),
    "path of 1 MB": lambda f: _commit(f, _changed(ADD, path="a/" * 500_000 + "b")),
    "key twice": lambda f: _commit(f, '{"add":{"path":1,"path":"a"}}'),
    "list": lambda f: _commit(f, "[" + "1," * 1_000_000 + "1]"),
    "only white space": lambda f: _commit(f, b" " * 10_000_000),
    "white space, then damage": lambda f: _commit(f, b" " * 10_000_000 + b"{"),
    "a million lines of nothing": lambda f: _commit(f, b"{}\n" * 1_000_000),
    "statistics nested deeply": lambda f: _commit(
        f, _changed(ADD, stats='{"minValues":' + '{"id":' * _DEEP + "1" + "}" * _DEEP + "}")
    ),
    "statistics with a huge number": lambda f: _commit(
        f, _changed(ADD, stats='{"numRecords":' + "9" * 400 + "}")
    ),
    "statistics with an endless number": lambda f: _commit(
        f, _changed(ADD, stats='{"numRecords":' + "9" * 10_000 + "}")
    ),
    "statistics that aren't numbers": lambda f: _commit(
        f, _changed(ADD, stats='{"numRecords":NaN,"minValues":{"id":1e999,"v":{}}}')
    ),
    "statistics with half a character": lambda f: _commit(
        f, _changed(ADD, stats='{"numRecords":1,"minValues":{"v":"\\ud800"}}')
    ),
    "commit time beyond all": lambda f: _commit(
        f, json.dumps({"commitInfo": {"timestamp": 10**30, "inCommitTimestamp": 10**30}})
    ),
    "commitInfo with numbers beyond all": lambda f: _commit(
        f,
        json.dumps({"commitInfo": {"readVersion": 10**30, "operationMetrics": {"n": 1e308}}}),
    ),
    "txn beyond a long": lambda f: _commit(
        f, json.dumps({"txn": {"appId": "a", "version": 2**64}})
    ),
    "protocol beyond all": lambda f: _commit(
        f, json.dumps({"protocol": {"minReaderVersion": 2**40, "minWriterVersion": 2**40}})
    ),
}

SCHEMAS: dict[str, Case] = {
    "schema nested 101 deep": lambda f: _commit(f, _schema(_nested(101))),
    "schema nested deeply": lambda f: _commit(f, _schema(_nested(20_000))),
    "schema nested very deeply": lambda f: _commit(f, _schema(_nested(_DEEP))),
    "schema that is a list": lambda f: _commit(f, _schema("[]")),
    "schema with a number for a name": lambda f: _commit(
        f, _schema('{"type":"struct","fields":[{"name":1,"type":"long"}]}')
    ),
    "schema with a list for a type": lambda f: _commit(
        f, _schema('{"type":"struct","fields":[{"name":"a","type":["long"]}]}')
    ),
    "decimal beyond all": lambda f: _commit(
        f, _schema('{"type":"struct","fields":[{"name":"a","type":"decimal(999999999,1)"}]}')
    ),
    "decimal of many digits": lambda f: _commit(
        f,
        _schema(f'{{"type":"struct","fields":[{{"name":"a","type":"decimal({"9" * 9000},1)"}}]}}'),
    ),
    "partitioned by nothing that exists": lambda f: _commit(
        f, _changed(METADATA, partitionColumns=["x", "id", "id"])
    ),
    "property of many digits": lambda f: _commit(
        f,
        _changed(
            METADATA,
            configuration={
                "delta.checkpointInterval": "9" * 10_000,
                "delta.logRetentionDuration": "interval 99999999999999999999 weeks",
                "delta.columnMapping.maxColumnId": "9" * 10_000,
            },
        ),
    ),
    "retention beyond all": lambda f: _commit(
        f,
        _changed(
            METADATA,
            configuration={"delta.deletedFileRetentionDuration": f"interval {'9' * 400} weeks"},
        ),
    ),
}

VECTORS: dict[str, Case] = {
    "vector that is no Z85": lambda f: _vector(f, pathOrInlineDv="äöüäö"),
    "vector of negative size": lambda f: _vector(f, sizeInBytes=-1),
    "vector of 2 GB": lambda f: _vector(f, sizeInBytes=2**31 - 1),
    "vector of 2^40 bytes": lambda f: _vector(f, sizeInBytes=2**40),
    "vector with a negative count": lambda f: _vector(f, cardinality=-1),
    "vector of all rows": lambda f: _vector(f, **_bitmap(_filled(1), 2**32)),
    "vector of all rows of many": lambda f: _vector(f, **_bitmap(_filled(2), 2 * 2**32)),
    "vector of a row that is far away": lambda f: _vector(
        f, **_bitmap(encode_bitmap(BitMap64([2**62])), 1)
    ),
    "vector with 2^60 parts": lambda f: _vector(
        f, **_bitmap(struct.pack("<IQ", 1681511377, 2**60), 1)
    ),
    "native vector with 2^31 parts": lambda f: _vector(f, **_bitmap(_native(2**31 - 1, b""), 1)),
    "native vector with -1 parts": lambda f: _vector(f, **_bitmap(_native(-1, b"1234"), 1)),
    "native vector of all rows": lambda f: _vector(
        f, **_bitmap(_native(1, struct.pack("<i", len(_filled(1)) - 16) + _filled(1)[16:]), 2**32)
    ),
    "vector file of 2 GB": lambda f: _vector_file(f, b"\1" + b"\x7f\xff\xff\xff" * 8),
    "vector file of negative size": lambda f: _vector_file(f, b"\1" + b"\xff" * 64),
    "vector file asked for 2 GB": lambda f: _vector_file(f, b"\1" * 64, sizeInBytes=2**31 - 1),
    "vector far behind the end": lambda f: _vector_file(f, b"\1" * 64, offset=2**31 - 1),
    "vector before the start": lambda f: _vector_file(f, b"\1" * 64, offset=-9),
    "vector of a kind nobody knows": lambda f: _vector(f, storageType="z"),
}


def _hint(folder: Path, data: bytes) -> None:
    _commit(folder, "{}")
    (_log(folder) / "_last_checkpoint").write_bytes(data)


def _checksum(folder: Path, data: bytes) -> None:
    _commit(folder, "{}")
    (_log(folder) / f"{1:020}.crc").write_bytes(data)


HINTS: dict[str, Case] = {
    "hint nested deeply": lambda f: _hint(f, b'{"version":1,"x":' + b"[" * _DEEP),
    "hint nested deeply, with a checksum": lambda f: _hint(
        f, b'{"version":1,"checksum":"x","x":' + b"[" * 900 + b"]" * 900 + b"}"
    ),
    "hint of 20 MB": lambda f: _hint(f, b" " * _BIG),
    "hint beyond a long": lambda f: _hint(f, b'{"version":' + b"9" * 300 + b',"size":1}'),
    "hint with half a character": lambda f: _hint(
        f, b'{"version":1,"checksum":"x","\\ud800":"\\ud800"}'
    ),
    "checksum nested deeply": lambda f: _checksum(
        f, b'{"tableSizeBytes":1,"numFiles":1,"x":' + b"[" * _DEEP
    ),
    "checksum of 20 MB": lambda f: _checksum(f, b" " * _BIG),
    "checksum with huge numbers": lambda f: _checksum(
        f, b'{"tableSizeBytes":' + b"9" * 400 + b',"numFiles":-1}'
    ),
}


_TEXTS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_SCHEMA = pa.schema(
    [
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                ]
            ),
        ),
        ("add", _ADD),
    ]
)


def _checkpoint(folder: Path, *parts: pa.StructArray) -> None:
    """A table of a checkpoint alone, which lists these files."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata: dict[str, object] = {"partitionColumns": [], "configuration": []}
    metadata |= {"id": "t", "schemaString": hostile.SCHEMA}
    first = pa.Table.from_pylist([{"protocol": protocol}, {"metaData": metadata}], schema=_SCHEMA)
    _log(folder).mkdir(parents=True)
    path = _log(folder) / f"{1:020}.checkpoint.parquet"
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        writer.write_table(first)
        for adds in parts:
            nulls = [pa.nulls(len(adds), item.type) for item in list(_SCHEMA)[:2]]
            writer.write_table(pa.Table.from_arrays([*nulls, adds], schema=_SCHEMA))


def _adds(paths: pa.Array, **fields: pa.Array) -> pa.StructArray:
    """The column `add` of files with these paths."""
    count = len(paths)
    offsets, none = pa.repeat(pa.scalar(0, pa.int32()), count + 1), pa.array([], pa.string())
    columns = {
        "path": paths,
        "partitionValues": pa.MapArray.from_arrays(offsets, none, none),
        "size": pa.repeat(pa.scalar(1, pa.int64()), count),
        "modificationTime": pa.repeat(pa.scalar(1, pa.int64()), count),
        "dataChange": pa.repeat(pa.scalar(False), count),
        "stats": pa.nulls(count, pa.string()),
    }
    columns |= fields
    return pa.StructArray.from_arrays([columns[item.name] for item in _ADD], fields=list(_ADD))


def _of_one_text(text: str, count: int) -> pa.StructArray:
    """Many files whose names are one text, which a dictionary holds once."""
    return _adds(pa.repeat(pa.scalar(text), count))


def _many_values(count: int) -> pa.MapArray:
    texts = pa.repeat(pa.scalar("k"), count)
    return pa.MapArray.from_arrays(pa.array([0, count], pa.int32()), texts, texts)


def _one() -> pa.Array:
    return pa.array(["a"])


def _same_sidecar(folder: Path) -> None:
    """A small checkpoint that names one file 100,000 times."""
    _log(folder).mkdir(parents=True)
    sidecar = {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    v2 = {"minReaderVersion": 3, "minWriterVersion": 7}
    v2 |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}  # type: ignore[dict-item]
    lines = [{"checkpointMetadata": {"version": 1}}, {"protocol": v2}, METADATA]
    text = (
        "".join(json.dumps(line) + "\n" for line in lines) + (json.dumps(sidecar) + "\n") * 100_000
    )
    (_log(folder) / f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(
        text
    )
    adds = _of_one_text("a", 100)
    (_log(folder) / "_sidecars").mkdir()
    pq.write_table(pa.table({"add": adds}), _log(folder) / "_sidecars" / "x.parquet")


PARQUET: dict[str, Case] = {
    "a long name, 50,000 times": lambda f: _checkpoint(f, _of_one_text("x" * 40_000, 20_000)),
    "30 million rows of nothing": lambda f: _checkpoint(f, *[pa.nulls(2_000_000, _ADD)] * 15),
    "statistics of 640 MB": lambda f: _checkpoint(
        f, *[_adds(_one(), stats=pa.array([" " * 40_000_000]))] * 16
    ),
    "25 million partition values": lambda f: _checkpoint(
        f, _adds(_one(), partitionValues=_many_values(25_000_000))
    ),
    "one sidecar, 100,000 times": _same_sidecar,
    "no Parquet": lambda f: _commit(f, b"PAR1" * 1000, 2),
}
