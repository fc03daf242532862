from __future__ import annotations

import io
import json
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commit.log_of import VECTORS, add, metadata, remove, vector
from txlake.errors import CorruptTable
from txlake.log.files import Files
from txlake.protocol.actions import (
    Action,
    Add,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
    encode_actions,
)
from txlake.protocol.checkpoint_writing import (
    CheckpointState,
    classic_checkpoint,
    manifest,
    multi_part_checkpoint,
    sidecar_files,
)
from txlake.protocol.checkpoints import CheckpointRows, read_checkpoint, read_removes
from txlake.protocol.file_rows import adds_of, files_table
from txlake.protocol.lazy_stats import LazyStats
from txlake.protocol.spark_hash import SEED, hash_texts, part_of
from txlake.protocol.types import parse_schema

_NAME = "_delta_log/00000000000000000010.checkpoint.parquet"
_ADD = Add(
    path="p=1/a%20b.parquet",
    partition_values={"p": "1"},
    size=3,
    modification_time=4,
    data_change=False,
    stats='{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}',
    tags={"k": "v"},
    deletion_vector=vector(),
    base_row_id=5,
    default_row_commit_version=6,
    clustering_provider="liquid",
    extra={"newNumber": 1, "newList": ["a"], "newObject": {"x": {}}, "newMixed": 1},
)
_REMOVE = Remove(
    path="old",
    data_change=True,
    deletion_timestamp=7,
    extended_file_metadata=True,
    partition_values={"p": None},
    size=8,
    deletion_vector=vector(offset=None),
    base_row_id=9,
    default_row_commit_version=2,
    extra={"newFlag": True},
)
_OTHERS: list[Action] = [
    msgspec.structs.replace(VECTORS, extra={"newKind": "x"}),
    msgspec.structs.replace(metadata({"a": "b"}, ["p"]), description="d", extra={"newText": "y"}),
    Txn(app_id="app", version=3, last_updated=4, extra={"newNumber": 2}),
    Txn(app_id="other", version=1),
    DomainMetadata(domain="d", configuration="{}", removed=False),
]


def _state(
    adds: list[Add], removes: list[Remove], others: list[Action] | None = None
) -> CheckpointState:
    actions = _OTHERS if others is None else others
    meta = next(item for item in actions if isinstance(item, Metadata))
    return CheckpointState(
        protocol=next(item for item in actions if isinstance(item, Protocol)),
        metadata=meta,
        app_transactions=[item for item in actions if isinstance(item, Txn)],
        domains=[item for item in actions if isinstance(item, DomainMetadata)],
        files=Files.of_table(files_table(adds)),
        removes=removes,
        schema=parse_schema(meta.schema_string),
        partition_columns=meta.partition_columns,
    )


def _files(rows: CheckpointRows) -> pa.Table:
    """The files with their statistics."""
    return Files.of_columns(rows.columns, LazyStats([rows.stats])).table


def _columns(data: bytes) -> pa.Schema:
    return pq.read_schema(io.BytesIO(data))


def test_many_tombstones_are_in_row_groups_that_a_reader_of_files_skips() -> None:
    removes = [remove(f"r{i}") for i in range(1_001)]
    data = classic_checkpoint(_state([_ADD, add("plain")], removes))
    expected = read_checkpoint(data, file=_NAME)
    assert sorted(item.path for item in adds_of(_files(expected))) == sorted([_ADD.path, "plain"])
    assert len(expected.others) == len(_OTHERS)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert [metadata.row_group(group).num_rows for group in range(2)] == [2 + len(_OTHERS), 1_001]
    damaged = bytearray(data)
    for place in range(metadata.num_columns):
        column = metadata.row_group(1).column(place)
        start = column.dictionary_page_offset or column.data_page_offset
        damaged[start : start + column.total_compressed_size] = b"\xff" * (
            column.total_compressed_size
        )
    assert _files(read_checkpoint(bytes(damaged), file=_NAME)) == _files(expected)
    assert len(read_removes(data, file=_NAME)) == 1_001
    with pytest.raises(CorruptTable, match=_NAME):
        read_removes(bytes(damaged), file=_NAME)


def test_without_counts_of_nulls_all_row_groups_are_read() -> None:
    data = classic_checkpoint(_state([_ADD], [remove(f"r{i}") for i in range(1_001)]))
    sink = io.BytesIO()
    table = pq.read_table(io.BytesIO(data))
    pq.write_table(table, sink, row_group_size=3, write_statistics=False)
    rows = read_checkpoint(sink.getvalue(), file=_NAME)
    assert [item.path for item in adds_of(_files(rows))] == [_ADD.path]
    assert len(rows.others) == len(_OTHERS)
    assert len(read_removes(sink.getvalue(), file=_NAME)) == 1_001


def test_a_checkpoint_keeps_all_that_it_is_given() -> None:
    mixed = msgspec.structs.replace(_ADD, path="b", extra={"newMixed": "text"})
    data = classic_checkpoint(_state([_ADD, mixed, add("plain")], [_REMOVE, remove("r")]))
    rows = read_checkpoint(data, file=_NAME)
    found = {item.path: item for item in adds_of(_files(rows))}
    assert found["plain"] == msgspec.structs.replace(add("plain"), data_change=False)
    assert msgspec.structs.replace(found[_ADD.path], extra={}) == msgspec.structs.replace(
        _ADD, extra={}
    )
    # What has no type in Parquet (an empty object, two types in one field) is kept as JSON text.
    assert found[_ADD.path].extra == {
        "newNumber": 1,
        "newList": ["a"],
        "newObject": '{"x":{}}',
        "newMixed": "1",
    }
    assert found["b"].extra == {"newMixed": "text"}
    assert sorted(map(repr, rows.others)) == sorted(map(repr, _OTHERS))
    removes = {item.path: item for item in read_removes(data, file=_NAME)}
    assert removes["old"] == _REMOVE
    assert removes["r"] == remove("r")


def test_a_second_rewrite_changes_nothing() -> None:
    first = read_checkpoint(classic_checkpoint(_state([_ADD], [])), file=_NAME)
    second = read_checkpoint(
        classic_checkpoint(_state(adds_of(_files(first)), [], list(first.others))), file=_NAME
    )
    assert _files(second).equals(_files(first))
    assert list(map(repr, second.others)) == list(map(repr, first.others))


def test_columns_are_those_of_the_specification() -> None:
    schema = _columns(classic_checkpoint(_state([add("a")], [])))
    assert schema.names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    assert schema.field("protocol").type.field("minReaderVersion").type == pa.int32()
    assert schema.field("metaData").type.field("createdTime").type == pa.int64()
    vector_type = schema.field("add").type.field("deletionVector").type
    assert vector_type.field("sizeInBytes").type == pa.int32()
    assert vector_type.field("cardinality").type == pa.int64()
    removed = schema.field("remove").type
    assert removed.get_field_index("stats") == removed.get_field_index("tags") == -1


def test_a_checkpoint_is_for_every_reader() -> None:
    data = classic_checkpoint(_state([add("a")], [remove("r")]))
    assert not pq.read_metadata(io.BytesIO(data)).metadata, "what only Arrow reads takes room"


@pytest.mark.parametrize(
    ("as_json", "as_struct"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_statistics_in_the_forms_that_were_asked_for(as_json: bool, as_struct: bool) -> None:
    state = replace(_state([_ADD], []), stats_as_json=as_json, stats_as_struct=as_struct)
    data = classic_checkpoint(state)
    fields = _columns(data).field("add").type
    assert (fields.get_field_index("stats") >= 0) is as_json
    assert (fields.get_field_index("stats_parsed") >= 0) is as_struct
    assert (fields.get_field_index("partitionValues_parsed") >= 0) is as_struct
    stats = adds_of(_files(read_checkpoint(data, file=_NAME)))[0].stats
    if as_json or as_struct:
        assert json.loads(stats or "") == json.loads(_ADD.stats or "")
    else:
        assert stats is None


def test_no_reader_skips_files_by_bounds_of_fractions() -> None:
    """Arrow leaves NaN out of them, and a dictionary takes 0.0 and -0.0 for two values."""
    fields: list[dict[str, object]] = [
        {"name": name, "type": "double", "nullable": True, "metadata": {}} for name in ("p", "x")
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    values = ["1.0", "NaN", "-0.0"]
    stats = '{"numRecords":1,"minValues":{"x":-0.0},"maxValues":{"x":0.0},"nullCount":{"x":0}}'
    adds = [
        msgspec.structs.replace(
            add(f"f{number}", stats=stats), partition_values={"p": values[number % 3]}
        )
        for number in range(2000)
    ]
    table = msgspec.structs.replace(metadata({}, ["p"]), schema_string=text)
    state = replace(_state(adds, [], [VECTORS, table]), stats_as_struct=True)
    footer = pq.read_metadata(io.BytesIO(classic_checkpoint(state)))
    group = footer.row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    fractions = [chunk for chunk in chunks if chunk.physical_type in ("FLOAT", "DOUBLE")]
    assert {chunk.path_in_schema for chunk in fractions} == {
        "add.partitionValues_parsed.p",
        "add.stats_parsed.minValues.x",
        "add.stats_parsed.maxValues.x",
    }
    for chunk in fractions:
        assert not chunk.is_stats_set
        assert "RLE_DICTIONARY" not in chunk.encodings
    others = [chunk for chunk in chunks if chunk not in fractions]
    assert all(chunk.is_stats_set for chunk in others)
    assert any("RLE_DICTIONARY" in chunk.encodings for chunk in others)


def test_every_row_stands_in_one_part() -> None:
    adds = [add(f"f{i}", vector=vector() if i % 3 else None) for i in range(50)]
    removes = [remove(f"r{i}") for i in range(20)]
    state = replace(_state(adds, removes), has_vectors=True)
    parts = list(multi_part_checkpoint(state, 4))
    read = [read_checkpoint(part, file=_NAME) for part in parts]
    paths = [row for part in read for row in _files(part)["path"].to_pylist()]
    assert sorted(paths) == sorted(item.path for item in adds)
    gone = [item.path for part in parts for item in read_removes(part, file=_NAME)]
    assert sorted(gone) == sorted(item.path for item in removes)
    assert [bool(part.others) for part in read] == [False, False, True, False]
    assert min(_files(part).num_rows for part in read) > 0
    by_path = hash_texts([item.path for item in adds], np.full(50, SEED, np.uint32))
    hashes = hash_texts([item.key[1] for item in adds], by_path)
    for item, part in zip(adds, part_of(hashes, 4).tolist()):
        assert item.path in _files(read[part])["path"].to_pylist()
    again = list(
        multi_part_checkpoint(replace(state, files=Files.of_table(files_table(adds[::-1]))), 4)
    )
    for one, other in zip(read, (read_checkpoint(part, file=_NAME) for part in again)):
        assert set(_files(one)["path"].to_pylist()) == set(_files(other)["path"].to_pylist())


def test_sidecars_hold_the_files_and_the_manifest_the_rest() -> None:
    state = _state([add(f"f{i}") for i in range(5)], [remove("r")])
    files = list(sidecar_files(state, 2))
    assert [_files(read_checkpoint(data, file="s.parquet")).num_rows for data in files] == [2, 2, 1]
    assert [len(read_removes(data, file="s.parquet")) for data in files] == [0, 0, 1]
    assert _columns(files[0]).names == ["add", "remove"]
    sidecars = [Sidecar(path="x.parquet", size_in_bytes=1, modification_time=2)]
    rows = read_checkpoint(manifest(state, 10, sidecars), file=_NAME)
    assert _files(rows).num_rows == 0
    assert [item for item in rows.others if isinstance(item, Sidecar)] == sidecars
    assert CheckpointMetadata(version=10) in rows.others
    assert list(sidecar_files(_state([], []), 2)) == []
    assert len(list(sidecar_files(_state([], [remove("r")]), 2))) == 1


def test_a_json_manifest_is_read() -> None:
    lines = encode_actions([CheckpointMetadata(version=1), *_OTHERS, _ADD, _REMOVE])
    rows = read_checkpoint(lines, file="x.json")
    assert adds_of(_files(rows)) == [_ADD]
    assert len(rows.others) == len(_OTHERS) + 1
    assert read_removes(lines, file="x.json") == [_REMOVE]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1 nonsense PAR1",
        classic_checkpoint(_state([_ADD], []))[:-100],
        classic_checkpoint(_state([_ADD], []))[100:],
    ],
)
def test_a_damaged_file_is_named(data: bytes) -> None:
    with pytest.raises(CorruptTable, match=r"checkpoint\.parquet: not a readable checkpoint"):
        read_checkpoint(data, file=_NAME)
    with pytest.raises(CorruptTable, match=r"checkpoint\.parquet: not a readable checkpoint"):
        read_removes(data, file=_NAME)


def _written(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_rows_that_are_no_add_are_left_out_wherever_they_stand() -> None:
    kind = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
        ]
    )

    def rows(pattern: str) -> bytes:
        values = [
            {"path": f"f{at}", "partitionValues": [], "size": at, "modificationTime": 0,
             "dataChange": True}
            if letter == "a" else ({} if letter == "e" else None)
            for at, letter in enumerate(pattern)
        ]  # fmt: skip
        return _written(add=pa.array(values, kind))

    for pattern in ("aaa", "--aa-", "a-a-a", "-----", "ea-ea", "aa---", "---aa"):
        found = _files(read_checkpoint(rows(pattern), file=_NAME))["path"].to_pylist()
        assert found == [f"f{at}" for at, letter in enumerate(pattern) if letter == "a"]


def test_a_checkpoint_without_files_or_with_other_columns_is_read() -> None:
    rows = read_checkpoint(_written(unknown=pa.array([True])), file=_NAME)
    assert _files(rows).num_rows == 0
    assert rows.others == ()


def test_required_fields_must_be_there() -> None:
    kind = pa.struct([("path", pa.string()), ("size", pa.int64())])
    with pytest.raises(CorruptTable, match="expected path, partitionValues"):
        read_checkpoint(_written(add=pa.array([{"path": "a", "size": 1}], kind)), file=_NAME)
    kind = pa.struct(
        [("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string()))]
    )
    with pytest.raises(CorruptTable, match="size is null"):
        read_checkpoint(
            _written(add=pa.array([{"path": "a", "partitionValues": []}], kind)), file=_NAME
        )
    with pytest.raises(CorruptTable, match="expected a field 'id'"):
        read_checkpoint(_written(metaData=pa.array([{"name": "x"}])), file=_NAME)
