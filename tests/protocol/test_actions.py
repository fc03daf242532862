from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from txlake.errors import CorruptTable
from txlake.protocol import actions
from txlake.protocol.actions import (
    WIRE_NAMES,
    Action,
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    TransactionGroup,
    Txn,
    action_to_object,
    actions_from_object,
    decode_actions,
    encode_actions,
)

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=34, cardinality=2, offset=1
)
ACTIONS: list[Action] = [
    CommitInfo({"operation": "WRITE", "timestamp": 5, "isBlindAppend": True}),
    Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("a",)
    ),
    Metadata(
        id="m",
        schema_string="{}",
        partition_columns=("p",),
        configuration={"k": "v"},
        name="n",
        created_time=1,
    ),
    Txn(app_id="app", version=3, last_updated=4),
    DomainMetadata(domain="d", configuration="{}", removed=False),
    Remove(path="a%20b", data_change=True, deletion_timestamp=7, deletion_vector=VECTOR),
    Add(
        path="a%20b",
        partition_values={"p": None, "q": "1"},
        size=10,
        modification_time=11,
        data_change=False,
        stats='{"numRecords":1}',
        tags={"t": "1", "none": None},
        deletion_vector=VECTOR,
        base_row_id=0,
        default_row_commit_version=2,
        clustering_provider="liquid",
    ),
    Cdc(path="c", partition_values={}, size=1, data_change=False),
    CheckpointMetadata(version=9, tags={"x": "y"}),
    Sidecar(path="s", size_in_bytes=1, modification_time=2),
    TransactionGroup({"transactionId": "t", "participants": [], "more": {"x": None}}),
]


def test_every_action_is_written_and_reads_back() -> None:
    assert {type(action) for action in ACTIONS} == set(WIRE_NAMES.values())
    data = encode_actions(ACTIONS)
    assert data.count(b"\n") == len(ACTIONS)
    assert decode_actions(data, file="f") == ACTIONS


def test_the_wire_is_camel_case_without_nulls() -> None:
    add = Add(
        path="x",
        partition_values={"p": None},
        size=1,
        modification_time=2,
        data_change=True,
        deletion_vector=DeletionVector(
            storage_type="i", path_or_inline_dv="z", size_in_bytes=1, cardinality=1
        ),
    )
    assert action_to_object(add) == {
        "add": {
            "path": "x",
            "partitionValues": {"p": None},
            "size": 1,
            "modificationTime": 2,
            "dataChange": True,
            "deletionVector": {
                "storageType": "i",
                "pathOrInlineDv": "z",
                "sizeInBytes": 1,
                "cardinality": 1,
            },
        }
    }
    assert action_to_object(Metadata(id="m")) == {
        "metaData": {
            "id": "m",
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
        }
    }


def test_a_file_is_known_by_its_path_and_its_vector() -> None:
    plain = Add(path="x", partition_values={}, size=1, modification_time=2, data_change=True)
    assert plain.key == ("x", None)
    assert ACTIONS[6].key == ACTIONS[5].key == ("a%20b", f"u{'x' * 20}@1")  # type: ignore[union-attr]
    inline = DeletionVector(storage_type="i", path_or_inline_dv="z", size_in_bytes=1, cardinality=1)
    assert inline.unique_id == "iz"


def test_unknown_fields_survive() -> None:
    line = {
        "add": {
            "path": "x",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 2,
            "dataChange": True,
            "newField": {"deep": [1]},
            "deletionVector": {
                "storageType": "i",
                "pathOrInlineDv": "z",
                "sizeInBytes": 1,
                "cardinality": 1,
                "newer": True,
            },
        }
    }
    [add] = decode_actions(json.dumps(line).encode(), file="f")
    assert isinstance(add, Add)
    assert add.extra == {"newField": {"deep": [1]}}
    assert add.deletion_vector is not None
    assert add.deletion_vector.extra == {"newer": True}
    assert json.loads(encode_actions([add])) == line


def test_a_line_that_we_do_not_know_slows_down_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[object] = []

    def watched(line: Mapping[str, object], *, file: str) -> Iterator[Action]:
        slow.append(line)
        return actions_from_object(line, file=file)

    monkeypatch.setattr(actions, "actions_from_object", watched)
    known = [b'{"txn":{"appId":"a%d","version":1}}' % place for place in range(5)]
    unknown = b'{"txn":{"appId":"n","version":1,"new":2}}'
    data = b"\n".join([*known[:2], unknown, b'{"future":{}}', b"", *known[2:]])
    found = decode_actions(data, file="f")
    assert [item.app_id for item in found if isinstance(item, Txn)] == [
        "a0", "a1", "n", "a2", "a3", "a4",
    ]  # fmt: skip
    assert slow == [json.loads(unknown), {"future": {}}]


def test_an_object_may_go_over_several_lines() -> None:
    whole = [Txn(app_id="a", version=1), Txn(app_id="b", version=2, extra={"new": 1})]
    text = "\n".join(json.dumps(action_to_object(item), indent=1) for item in whole)
    assert decode_actions(f"{encode_actions(whole).decode()}{text}\n".encode(), file="f") == [
        *whole,
        *whole,
    ]


def test_unknown_fields_of_a_format_do_no_harm() -> None:
    line = {"metaData": {"id": "m", "format": {"provider": "parquet", "new": 1}}}
    [found] = decode_actions(json.dumps(line).encode(), file="f")
    assert found == Metadata(id="m", format=Format())


def test_unknown_actions_are_skipped() -> None:
    data = b'{"future":{"x":1}}\n{"txn":{"appId":"a","version":1}}\n{"add":null}\n'
    assert decode_actions(data, file="f") == [Txn(app_id="a", version=1)]


@pytest.mark.parametrize("between", ["\n", "", " ", "\r\n", "\n\n"])
def test_white_space_between_actions_does_not_count(between: str) -> None:
    data = between.join(['{"txn":{"appId":"a","version":1}}', '{"txn":{"appId":"b","version":2}}'])
    assert decode_actions(data.encode(), file="f") == [
        Txn(app_id="a", version=1),
        Txn(app_id="b", version=2),
    ]
    assert decode_actions(b"", file="f") == []


def test_several_actions_in_one_object_are_all_read() -> None:
    data = (
        b'{"commitInfo":{},"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":2,'
        b'"dataChange":true},"remove":{"path":"y","dataChange":true}}'
    )
    kinds = {type(action) for action in decode_actions(data, file="f")}
    assert kinds == {CommitInfo, Add, Remove}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"txn":{"appId":"a","version":1}}\n{"txn":{"ap', "f.json: broken JSON in line 2"),
        (b"[1]", "f.json: expected a JSON object"),
        (b"\xff\xfe", "f.json: not UTF-8 at byte 0"),
        (b'{"txn":{"appId":"a","version":"x"}}', r"f.json: txn: .*version"),
        (b'{"txn":{"appId":"a"}}', r"f.json: txn: .*version"),
        (b'{"txn":1}', "f.json: txn: expected an object"),
        (b'{"add":{"path":"x"}}', "f.json: add: "),
    ],
)
def test_damage_names_the_file(data: bytes, message: str) -> None:
    with pytest.raises(CorruptTable, match=message):
        decode_actions(data, file="f.json")


def test_actions_as_dictionaries() -> None:
    for action in ACTIONS:
        assert list(actions_from_object(action_to_object(action), file="f")) == [action]


def test_what_a_commit_info_says() -> None:
    info = CommitInfo({"operation": "WRITE", "readVersion": 3, "isBlindAppend": False})
    assert (info.text("operation"), info.text("readVersion")) == ("WRITE", None)
    assert (info.number("readVersion"), info.number("isBlindAppend")) == (3, None)
    assert (info.flag("isBlindAppend"), info.flag("operation"), info.flag("x")) == (
        False,
        None,
        None,
    )


def test_actions_of_the_golden_tables_read_back(golden: Path) -> None:
    seen = 0
    for commit in golden.rglob("_delta_log/[0-9]*.json"):
        try:
            actions = decode_actions(commit.read_bytes(), file=str(commit))
        except CorruptTable:
            continue
        assert decode_actions(encode_actions(actions), file=str(commit)) == actions
        seen += len(actions)
    assert seen > 2000
