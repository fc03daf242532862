"""Which metadata changes of a winner are harmless."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.conflict.cases import PROTOCOL, metadata
from txlake.conflict.adoption import is_harmless, only_moves_marks
from txlake.protocol.actions import Metadata, Protocol

NAMES = {
    "delta__rowTracking__materializedRowIdColumnName": "_row-id",
    "delta__rowTracking__materializedRowCommitVersionColumnName": "_row-version",
}


Columns = list[dict[str, object]]


def columns() -> Columns:
    """The table's columns, to be changed."""
    return [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("p", "string"))
    ]


def of_columns(items: Columns, **configuration: str) -> Metadata:
    return metadata({"type": "struct", "fields": items}, **configuration)


def mapped(**names: str) -> Metadata:
    """Columns mapped by name; `names` are physical names other than the logical ones."""
    items = columns()
    for number, item in enumerate(items, 1):
        item["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": names.get(str(item["name"]), item["name"]),
        }
    return of_columns(
        items, delta__columnMapping__mode="name", delta__columnMapping__maxColumnId="2"
    )


def with_column() -> Metadata:
    new: Columns = [{"name": "new", "type": "long", "nullable": True, "metadata": {}}]
    return of_columns([*columns(), *new])


def identity(mark: int, **more: object) -> Metadata:
    items = columns()
    about = {"delta.identity.start": 1, "delta.identity.step": 1, **more}
    items[0]["metadata"] = {**about, "delta.identity.highWaterMark": mark}
    return of_columns(items)


def columns_of(table: Metadata) -> Columns:
    fields: Columns = json.loads(table.schema_string or "")["fields"]
    return fields


def of_map(**about: dict[str, object]) -> Metadata:
    """A column `m`, a map from structs to structs; `about` is what their field's metadata say."""
    sides: dict[str, object] = {
        side: {
            "type": "struct",
            "fields": [
                {"name": "x", "type": "long", "nullable": True, "metadata": about.get(side, {})}
            ],
        }
        for side in ("keyType", "valueType")
    }
    kind = {"type": "map", "valueContainsNull": True, **sides}
    item = {"name": "m", "type": kind, "nullable": True, "metadata": about.get("m", {})}
    mode = {"delta__columnMapping__mode": "name", "delta__columnMapping__maxColumnId": "3"}
    return of_columns([item], **(mode if about else {}))


def mapped_map(other: str = "") -> Metadata:
    """The map's columns mapped by name, that of one side by another name."""
    names = {"m": "m", "keyType": "x", "valueType": "x"}
    if other:
        names[other] = "col-9"
    return of_map(
        **{
            side: {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
            for number, (side, name) in enumerate(names.items(), 1)
        }
    )


PLAIN = metadata()
PLAIN_MAP = of_map()
HARMLESS = {
    "nothing": (PLAIN, metadata()),
    "deletion vectors on": (PLAIN, metadata(delta__enableDeletionVectors="true")),
    "in-commit timestamps on": (
        PLAIN,
        metadata(
            delta__enableInCommitTimestamps="true",
            delta__inCommitTimestampEnablementVersion="6",
            delta__inCommitTimestampEnablementTimestamp="1",
        ),
    ),
    "V2 checkpoints on": (PLAIN, metadata(delta__checkpointPolicy="v2")),
    "V2 checkpoints on, from classic": (
        metadata(delta__checkpointPolicy="classic"),
        metadata(delta__checkpointPolicy="v2"),
    ),
    "row tracking on": (PLAIN, metadata(delta__enableRowTracking="true", **NAMES)),
    "column mapping on": (PLAIN, mapped()),
    "column mapping on, within a map": (PLAIN_MAP, mapped_map()),
    "an identity's mark": (identity(1), identity(2)),
    "nothing beside a property": (metadata(mine="1"), metadata(mine="1")),
}
HARMFUL = {
    "a property of the user's": (PLAIN, metadata(mine="1")),
    "deletion vectors off": (
        metadata(delta__enableDeletionVectors="true"),
        metadata(delta__enableDeletionVectors="false"),
    ),
    "deletion vectors unset": (metadata(delta__enableDeletionVectors="true"), PLAIN),
    "deletion vectors and more": (PLAIN, metadata(delta__enableDeletionVectors="true", mine="1")),
    "in-commit timestamps off": (
        metadata(delta__enableInCommitTimestamps="true"),
        metadata(delta__enableInCommitTimestamps="false"),
    ),
    "another time since when commits carry theirs": (
        metadata(delta__inCommitTimestampEnablementVersion="3"),
        metadata(delta__inCommitTimestampEnablementVersion="5"),
    ),
    "V2 checkpoints off": (
        metadata(delta__checkpointPolicy="v2"),
        metadata(delta__checkpointPolicy="classic"),
    ),
    "names of hidden columns alone": (PLAIN, metadata(**NAMES)),
    "row tracking off": (
        metadata(delta__enableRowTracking="true", **NAMES),
        metadata(delta__enableRowTracking="false", **NAMES),
    ),
    "column mapping with other names": (PLAIN, mapped(id="col-1")),
    "column mapping by id": (
        PLAIN,
        msgspec.structs.replace(
            mapped(),
            configuration={**mapped().configuration, "delta.columnMapping.mode": "id"},
        ),
    ),
    "column mapping by name, from by id": (
        metadata(delta__columnMapping__mode="id", delta__columnMapping__maxColumnId="2"),
        metadata(delta__columnMapping__mode="name", delta__columnMapping__maxColumnId="2"),
    ),
    "column mapping by id alone": (PLAIN, metadata(delta__columnMapping__mode="id")),
    "other names where names are mapped": (mapped(id="col-1"), mapped()),
    "ids of columns without a mapping": (PLAIN, of_columns(columns_of(mapped()))),
    "column mapping with other names in a map's key": (PLAIN_MAP, mapped_map("keyType")),
    "column mapping with other names in a map's value": (PLAIN_MAP, mapped_map("valueType")),
    "column mapping off": (mapped(), PLAIN),
    "a column": (PLAIN, with_column()),
    "column mapping and a column": (
        PLAIN,
        msgspec.structs.replace(with_column(), configuration=mapped().configuration),
    ),
    "the name": (PLAIN, msgspec.structs.replace(PLAIN, name="n")),
    "the id": (PLAIN, msgspec.structs.replace(PLAIN, id="other")),
    "the partitioning": (PLAIN, msgspec.structs.replace(PLAIN, partition_columns=())),
    "an identity's step": (identity(1), identity(2, **{"delta.identity.step": 5})),
    "a schema that can't be read": (PLAIN, msgspec.structs.replace(PLAIN, schema_string="{")),
}
FEATURE_OF = {
    "deletion vectors on": "deletionVectors",
    "in-commit timestamps on": "inCommitTimestamp",
    "V2 checkpoints on": "v2Checkpoint",
    "row tracking on": "rowTracking",
    "column mapping on": "columnMapping",
    "column mapping on, within a map": "columnMapping",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    before, after = HARMLESS[name]
    assert is_harmless(before, after, PROTOCOL)


@pytest.mark.parametrize("name", HARMFUL)
def test_harmful(name: str) -> None:
    before, after = HARMFUL[name]
    assert not is_harmless(before, after, PROTOCOL)


@pytest.mark.parametrize("name", FEATURE_OF)
def test_only_when_the_protocol_lists_the_feature(name: str) -> None:
    left = tuple(f for f in PROTOCOL.writer_features or () if f != FEATURE_OF[name])
    reader = tuple(f for f in PROTOCOL.reader_features or () if f != FEATURE_OF[name])
    without = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=left
    )
    before, after = HARMLESS[name]
    assert not is_harmless(before, after, without)


def test_a_new_mark_harms_who_drew_identities() -> None:
    assert not is_harmless(identity(1), identity(2), PROTOCOL, moves_marks=True)


def test_marks_alone_move() -> None:
    assert only_moves_marks(identity(1), identity(2))
    assert not only_moves_marks(identity(1), identity(1))
    assert not only_moves_marks(identity(1), identity(2, **{"delta.identity.step": 5}))
    told = msgspec.structs.replace(identity(2), description="of orders")
    assert not only_moves_marks(identity(1), told)
    set_too = msgspec.structs.replace(identity(2), configuration={"a": "b"})
    assert not only_moves_marks(identity(1), set_too)
