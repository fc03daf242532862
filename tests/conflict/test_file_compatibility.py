"""Which changes of the settings files of the settings before don't fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conflict.cases import metadata
from txlake.conflict.file_compatibility import incompatibility
from txlake.protocol.actions import Metadata

Kind = object
MAPPED: dict[str, Any] = {"delta__columnMapping__mode": "name"}
ICEBERG: dict[str, Any] = {"delta__enableIcebergCompatV2": "true"}


def column(name: str, kind: Kind, nullable: bool = True, **about: object) -> dict[str, object]:
    return {
        "name": name,
        "type": kind,
        "nullable": nullable,
        "metadata": {key.replace("__", "."): value for key, value in about.items()},
    }


def of(*columns: dict[str, object], by: tuple[str, ...] = ("p",), **settings: str) -> Metadata:
    """A table of these columns, and of its partition column."""
    schema = {"type": "struct", "fields": [*columns, column("p", "string")]}
    return msgspec.structs.replace(metadata(schema, **settings), partition_columns=by)


def struct(*columns: dict[str, object]) -> Kind:
    return {"type": "struct", "fields": list(columns)}


def array(kind: Kind, contains_null: bool = True) -> Kind:
    return {"type": "array", "elementType": kind, "containsNull": contains_null}


def mapping(kind: Kind, contains_null: bool = True) -> dict[str, object]:
    return {
        "type": "map",
        "keyType": "string",
        "valueType": kind,
        "valueContainsNull": contains_null,
    }


def physical(name: str, number: int = 1) -> dict[str, Any]:
    return {
        "delta__columnMapping__id": number,
        "delta__columnMapping__physicalName": name,
    }


ID = column("id", "long")
PLAIN = of(ID)
UNREADABLE = msgspec.structs.replace(PLAIN, schema_string="{")
LEN = "__CHAR_VARCHAR_TYPE_STRING"

FITS: dict[str, tuple[Metadata, Metadata]] = {
    "nothing": (PLAIN, PLAIN),
    "a property": (PLAIN, of(ID, mine="1")),
    "a comment": (PLAIN, of(column("id", "long", comment="x"))),
    "another order": (PLAIN, of(column("b", "long"), ID)),
    "a new column": (PLAIN, of(ID, column("b", "long"))),
    "a new text of a length": (
        PLAIN,
        of(ID, {**column("b", "string"), "metadata": {LEN: "char(1)"}}),
    ),
    "a column less": (PLAIN, of()),
    "NULL allowed": (of(column("id", "long", False)), PLAIN),
    "a wider type": (of(column("id", "integer")), PLAIN),
    "a decimal in other words": (
        of(column("id", "decimal(10, 2)")),
        of(column("id", "decimal(10,2)")),
    ),
    "a constraint less": (of(ID, delta__constraints__c="id > 0"), PLAIN),
    "a constraint in other letters": (
        of(ID, delta__constraints__c="id > 0"),
        of(ID, delta__constraints__C="id > 0"),
    ),
    "partition columns in another order": (
        of(ID, by=("p", "id")),
        of(ID, by=("id", "p")),
    ),
    "a renamed partition column": (
        of(column("q", "string", **physical("c")), by=("q",), **MAPPED),
        of(column("r", "string", **physical("c")), by=("r",), **MAPPED),
    ),
    "mapping on, by the names that were": (PLAIN, of(column("id", "long", **physical("id")))),
    "a field of a struct": (
        of(column("s", struct(ID))),
        of(column("s", struct(ID, column("b", "long")))),
    ),
    "NOT NULL before and after": (
        of(column("id", "long", False)),
        of(column("id", "long", False), mine="1"),
    ),
    "elements NOT NULL before and after": (
        of(column("a", array("long", False))),
        of(column("a", array("long", False)), mine="1"),
    ),
    "values NOT NULL before and after": (
        of(column("m", mapping("long", False))),
        of(column("m", mapping("long", False)), mine="1"),
    ),
    "an invariant before and after": (
        of(column("id", "long", delta__invariants="x")),
        of(column("id", "long", delta__invariants="x"), mine="1"),
    ),
    "nothing, where the schema can't be read": (UNREADABLE, UNREADABLE),
    "Iceberg's rules before and after": (of(ID, **ICEBERG), of(ID, **ICEBERG, mine="1")),
    "Iceberg's rules no more": (of(ID, **ICEBERG), PLAIN),
    "wider elements": (of(column("a", array("byte"))), of(column("a", array("short")))),
    "wider values": (of(column("m", mapping("byte"))), of(column("m", mapping("short")))),
}
MISFITS: dict[str, tuple[Metadata, Metadata, str]] = {
    "mapping off, though the schema still tells the names": (
        of(column("id", "long", **physical("c")), **MAPPED),
        of(column("id", "long", **physical("c"))),
        "column id has another physical name",
    ),
    "Iceberg's rules": (PLAIN, of(ID, **ICEBERG), "one that Iceberg's readers know"),
    "partitioned no more": (PLAIN, of(ID, by=()), "partitioned by other columns"),
    "partitioned by more": (PLAIN, of(ID, by=("p", "id")), "partitioned by other columns"),
    "a constraint": (PLAIN, of(ID, delta__constraints__c="id > 0"), "constraint c is new"),
    "another constraint of a name": (
        of(ID, delta__constraints__c="id > 0"),
        of(ID, delta__constraints__c="id > 1"),
        "constraint c is new",
    ),
    "another type": (PLAIN, of(column("id", "string")), "column id was of type long"),
    "a narrower type": (PLAIN, of(column("id", "integer")), "column id was of type long"),
    "another kind of type": (PLAIN, of(column("id", array("long"))), "was of another type"),
    "NOT NULL": (PLAIN, of(column("id", "long", False)), "column id is NOT NULL now"),
    "a new column NOT NULL": (PLAIN, of(ID, column("b", "long", False)), "b is new and NOT NULL"),
    "a new generated column": (
        PLAIN,
        of(ID, column("b", "long", delta__generationExpression="id + 1")),
        "values of column b are checked otherwise",
    ),
    "an invariant": (
        PLAIN,
        of(column("id", "long", delta__invariants="x")),
        "values of column id are checked otherwise",
    ),
    "another length": (
        of({**column("t", "string"), "metadata": {LEN: "varchar(9)"}}),
        of({**column("t", "string"), "metadata": {LEN: "varchar(1)"}}),
        "values of column t are checked otherwise",
    ),
    "mapping off, with names of its own": (
        of(column("id", "long", **physical("c")), **MAPPED),
        PLAIN,
        "column id has another physical name",
    ),
    "a column dropped and made again": (
        of(column("id", "long", **physical("c")), **MAPPED),
        of(column("id", "long", **physical("d", 2)), **MAPPED),
        "column id has another physical name",
    ),
    "NOT NULL in a struct": (
        of(column("s", struct(ID))),
        of(column("s", struct(column("id", "long", False)))),
        "column s.id is NOT NULL now",
    ),
    "elements NOT NULL": (
        of(column("a", array("long"))),
        of(column("a", array("long", False))),
        "elements of column a",
    ),
    "values NOT NULL": (
        of(column("m", mapping("long"))),
        of(column("m", mapping("long", False))),
        "values of column m",
    ),
    "elements of another type": (
        of(column("a", array("long"))),
        of(column("a", array("string"))),
        "column a.element was of type long",
    ),
    "keys of another type": (
        of(column("m", mapping("long"))),
        of(column("m", {**mapping("long"), "keyType": "long"})),
        "column m.key was of type string",
    ),
    "a schema that can't be read": (
        PLAIN,
        UNREADABLE,
        "can't be read",
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_fits(name: str) -> None:
    assert incompatibility(*FITS[name]) is None


@pytest.mark.parametrize("name", MISFITS)
def test_does_not_fit(name: str) -> None:
    before, after, why = MISFITS[name]
    assert why in str(incompatibility(before, after))
