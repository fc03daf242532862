"""Tables whose logs are written by hand, as somebody would who means harm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlake.protocol.deletion_vectors import z85_encode
from txlake.protocol.roaring import vector_file

MARK = "the-secret-of-somebody-else"
"""What stands in every row that nobody may see."""

UUID = "11111111-2222-3333-4444-555555555555"
VECTOR_NAME = f"deletion_vector_{UUID}.bin"
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "v", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
STATS = '{"numRecords":3,"minValues":{"id":0},"maxValues":{"id":2},"nullCount":{"id":0}}'


OF_REMOVE = ("path", "dataChange", "deletionVector")
"""What an add and its remove have in common."""


def write_rows(file: Path, text: str) -> int:
    """A data file of three rows; its size."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([0, 1, 2]), "v": [text] * 3}), file)
    return file.stat().st_size


def write_vector(file: Path) -> dict[str, Any]:
    """A file with one deletion vector, and the sizes for its descriptor."""
    data, [(offset, size)] = vector_file([BitMap64([1])])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return {"offset": offset, "sizeInBytes": size, "cardinality": 1}


def add(path: str, size: int, vector: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An add action."""
    fields = {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": STATS,
    }
    return {"add": fields | ({} if vector is None else {"deletionVector": dict(vector)})}


def relative_vector(prefix: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """A descriptor of storage type `u`."""
    text = prefix + z85_encode(bytes.fromhex(UUID.replace("-", "")))
    return {"storageType": "u", "pathOrInlineDv": text, **sizes}


def absolute_vector(url: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """A descriptor of storage type `p`."""
    return {"storageType": "p", "pathOrInlineDv": url, **sizes}


def table(folder: Path, *actions: Mapping[str, Any]) -> Path:
    """A table whose version 0 has these actions besides protocol and metadata."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    first: list[Mapping[str, Any]] = [{"protocol": PROTOCOL}, {"metaData": metadata}]
    lines = [json.dumps(action) + "\n" for action in [*first, *actions]]
    (log / f"{0:020}.json").write_text("".join(lines))
    return folder
