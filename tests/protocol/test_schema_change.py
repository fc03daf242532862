from __future__ import annotations

import itertools

import pytest

from txlake.errors import InvalidRequest
from txlake.protocol.column_mapping import (
    all_fields,
    assign_column_ids,
    max_column_id,
    without_column_ids,
)
from txlake.protocol.schema_change import (
    add_column,
    as_table_schema,
    change_type,
    drop_column,
    merge_schemas,
    move_column,
    rename_column,
    widened_paths,
)
from txlake.protocol.schema_rules import validate_schema
from txlake.protocol.type_text import parse_columns, parse_type, sql_text
from txlake.protocol.type_widening import Widens, is_evolution, is_same_in_files, never_widens
from txlake.protocol.types import Field, Primitive, Struct


def columns(text: str) -> Struct:
    return parse_columns(text)


def shown(schema: Struct) -> str:
    return sql_text(schema)


# --- evolution ------------------------------------------------------------------------------------


def merged(table: str, incoming: str, widens: Widens = never_widens) -> str:
    return shown(merge_schemas(columns(table), columns(incoming), widens=widens))


@pytest.mark.parametrize(
    ("table", "incoming", "expected"),
    [
        ("a int", "a int", "a int"),
        ("a int", "b string, a int", "a int, b string"),
        ("a int NOT NULL", "A int", "a int NOT NULL"),
        ("a int", "b int NOT NULL, a int", "a int, b int"),
        ("a struct<x: int>", "a struct<y: int, x: int>", "a struct<x: int, y: int>"),
        ("a array<struct<x: int>>", "a array<struct<y: int>>", "a array<struct<x: int, y: int>>"),
        (
            "a map<struct<k: int>, struct<x: int>>",
            "a map<struct<k: int, l: int>, struct<y: int>>",
            "a map<struct<k: int, l: int>, struct<x: int, y: int>>",
        ),
        ("a long", "a int", "a long"),
        ("a double", "a float", "a double"),
        ("a decimal(10,2)", "a decimal(8,2)", "a decimal(10,2)"),
        ("a void", "a struct<x: int NOT NULL>", "a struct<x: int>"),
        ("a struct<x: int>", "a void", "a struct<x: int>"),
        ("a string", "a varchar(3)", "a string"),
        ("a int", "a long", "a int"),
        ("a int", "a string, b int", "a int, b int"),
        ("a array<int>", "a array<string>", "a array<int>"),
        ("a struct<x: int>", "a int", None),
        ("a int", "a array<int>", None),
        ("a int", "a int, A int", None),
    ],
)
def test_merging(table: str, incoming: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(InvalidRequest):
            merged(table, incoming)
    else:
        assert merged(table, incoming) == shown(columns(expected))


def test_incompatible_types_name_the_column_and_both_types() -> None:
    with pytest.raises(InvalidRequest, match=r"column a\.element\.x: .* bigint.* array<int>"):
        merged("a array<struct<x: long>>", "a array<struct<x: array<int>>>")


@pytest.mark.parametrize(
    ("column", "place"),
    [
        ("a array<void>", r"a\.element"),
        ("a map<int, void>", r"a\.value"),
        ("a struct<x: array<struct<y: array<void>>>>", r"a\.x\.element\.y\.element"),
    ],
)
def test_elements_without_a_type_are_no_new_column(column: str, place: str) -> None:
    with pytest.raises(InvalidRequest, match=f"column {place} has no type"):
        as_table_schema(columns(column))
    with pytest.raises(InvalidRequest, match=f"column {place} has no type"):
        merged("b int", column)
    assert merged("a array<int>", "a array<void>") == shown(columns("a array<int>"))
    assert as_table_schema(columns("a void")) == columns("a void")


def test_comments_of_new_columns_are_kept_and_foreign_metadata_is_not() -> None:
    incoming = Struct(
        (
            Field(
                "b",
                Primitive("long"),
                metadata={"comment": "x", "delta.columnMapping.id": 7, "CURRENT_DEFAULT": "1"},
            ),
        )
    )
    found = merge_schemas(columns("a int"), incoming)
    assert found.fields[1].metadata == {"comment": "x"}
    assert as_table_schema(incoming).fields[0].metadata == {"comment": "x"}


@pytest.mark.parametrize(
    ("old", "new", "evolves"),
    [
        ("byte", "short", True),
        ("short", "int", True),
        ("int", "long", True),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("int", "double", False),
        ("int", "decimal(10,0)", False),
        ("date", "timestamp", False),
        ("long", "double", False),
    ],
)
def test_evolution_widens_only_what_the_protocol_allows(old: str, new: str, evolves: bool) -> None:
    assert merged(f"a {old}", f"a {new}", is_evolution) == shown(
        columns(f"a {new if evolves else old}")
    )
    assert merged(f"a {old}", f"a {new}") == shown(columns(f"a {old}"))


@pytest.mark.parametrize("old", ["byte", "short", "int", "long"])
@pytest.mark.parametrize("new", ["byte", "short", "int", "long"])
def test_what_parquet_stores_alike_becomes_the_wider_of_both(old: str, new: str) -> None:
    names = ["byte", "short", "int", "long"]
    wider = names.index(old) < names.index(new) and new != "long"
    found = merge_schemas(
        columns(f"a {old}"), columns(f"a {new}"), widens=is_same_in_files, is_recorded=False
    )
    assert found == columns(f"a {new if wider else old}")  # and nothing is recorded


@pytest.mark.parametrize(
    ("new", "paths"),
    [
        ("a short, s struct<x: byte>, l array<byte>, m map<byte, byte>", []),
        ("s struct<x: int, y: int>, a short, n int", [("s", "x")]),
        (
            "a long, l array<short>, m map<short, int>",
            [("a",), ("l", "element"), ("m", "key"), ("m", "value")],
        ),
    ],
)
def test_widened_columns_are_found(new: str, paths: list[tuple[str, ...]]) -> None:
    old = columns("a short, s struct<x: byte>, l array<byte>, m map<byte, byte>")
    assert list(widened_paths(old, columns(new))) == paths


def test_a_widened_type_is_recorded_by_the_nearest_field() -> None:
    table = columns("a short, m map<float, array<decimal(6,2)>>, s struct<x: int>")
    once = merge_schemas(table, columns("a int"), widens=is_evolution)
    twice = merge_schemas(
        once,
        columns("a long, m map<double, array<decimal(10, 4)>>, s struct<x: long>"),
        widens=is_evolution,
    )
    a, m, s = twice.fields
    assert a.metadata["delta.typeChanges"] == [
        {"fromType": "short", "toType": "integer"},
        {"fromType": "integer", "toType": "long"},
    ]
    assert m.metadata["delta.typeChanges"] == [
        {"fromType": "float", "toType": "double", "fieldPath": "key"},
        {"fromType": "decimal(6,2)", "toType": "decimal(10,4)", "fieldPath": "value.element"},
    ]
    assert "delta.typeChanges" not in s.metadata
    assert isinstance(s.type, Struct)
    assert s.type.fields[0].metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long"}
    ]


# --- column DDL -----------------------------------------------------------------------------------

TABLE = "a int, s struct<x: int, y: int>, l array<struct<e: int>>, m map<string, struct<v: int>>"


@pytest.mark.parametrize(
    ("parent", "first", "after", "expected"),
    [
        ((), False, None, f"{TABLE}, n long"),
        ((), True, None, f"n long, {TABLE}"),
        ((), False, "A", TABLE.replace("a int,", "a int, n long,")),
        (("s",), False, "x", TABLE.replace("x: int,", "x: int, n: long,")),
        (("l", "element"), False, None, TABLE.replace("e: int", "e: int, n: long")),
        (("m", "value"), True, None, TABLE.replace("v: int", "n: long, v: int")),
    ],
)
def test_adding(parent: tuple[str, ...], first: bool, after: str | None, expected: str) -> None:
    new = Field("n", Primitive("long"))
    found = add_column(columns(TABLE), new, parent=parent, first=first, after=after)
    assert shown(found) == shown(columns(expected))


@pytest.mark.parametrize(
    ("name", "parent", "after", "message"),
    [
        ("A", (), None, "A exists already"),
        ("X", ("s",), None, r"s\.X exists already"),
        ("n", ("a",), None, "expected a struct"),
        ("n", ("none",), None, "no column none"),
        ("n", ("a", "b"), None, "a has type int"),
        ("n", (), "none", "no column none"),
    ],
)
def test_adding_refused(
    name: str, parent: tuple[str, ...], after: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        add_column(columns(TABLE), Field(name, Primitive("long")), parent=parent, after=after)


def test_a_column_that_is_added_takes_null() -> None:
    with pytest.raises(InvalidRequest, match="NOT NULL"):
        add_column(columns(TABLE), Field("n", Primitive("long"), nullable=False))


def test_dropping() -> None:
    assert shown(drop_column(columns(TABLE), ("s", "X"))) == shown(
        columns(TABLE.replace("x: int, ", ""))
    )
    with pytest.raises(InvalidRequest, match="no column z; there are: a, s, l, m"):
        drop_column(columns(TABLE), ("z",))
    with pytest.raises(InvalidRequest, match="only one"):
        drop_column(columns(TABLE), ("l", "element", "e"))


def test_renaming() -> None:
    assert shown(rename_column(columns(TABLE), ("m", "value", "v"), "w")) == shown(
        columns(TABLE.replace("v: int", "w: int"))
    )
    assert shown(rename_column(columns("a int, b int"), ("a",), "A")) == shown(
        columns("A int, b int")
    )
    with pytest.raises(InvalidRequest, match="there is a column y"):
        rename_column(columns(TABLE), ("s", "x"), "Y")


def test_moving() -> None:
    start = columns("a int, b int, c int")
    assert move_column(start, ("c",), first=True).names == ("c", "a", "b")
    assert move_column(start, ("a",), after="b").names == ("b", "a", "c")
    assert move_column(start, ("a",), after="a").names == ("a", "b", "c")
    with pytest.raises(InvalidRequest, match="no column z"):
        move_column(start, ("a",), after="z")


@pytest.mark.parametrize(
    ("path", "to", "widen", "allowed"),
    [
        (("a",), "int", False, True),
        (("a",), "long", False, False),
        (("a",), "long", True, True),
        (("a",), "double", True, True),
        (("a",), "decimal(10,0)", True, True),
        (("a",), "decimal(9,0)", True, False),
        (("a",), "short", True, False),
        (("s", "x"), "long", True, True),
        (("s",), "struct<x: long, y: int>", True, True),
        (("s",), "struct<y: int, x: int>", True, False),
        (("p", "element"), "long", True, True),
        (("p",), "array<long>", True, True),
        (("p",), "array<string>", True, False),
        (("nothing",), "struct<x: int>", False, True),
        (("z",), "int", False, False),
        (("p", "key"), "int", False, False),
    ],
)
def test_changing_a_type(path: tuple[str, ...], to: str, widen: bool, allowed: bool) -> None:
    schema = columns("a int, s struct<x: int, y: int>, p array<int>, nothing void")
    if allowed:
        found = change_type(schema, path, parse_type(to), allow_type_widening=widen)
        assert found.names == schema.names
    else:
        with pytest.raises(InvalidRequest):
            change_type(schema, path, parse_type(to), allow_type_widening=widen)


def test_a_changed_element_is_recorded_by_its_column() -> None:
    found = change_type(
        columns("p array<map<string, int>>"),
        ("p", "element", "value"),
        Primitive("long"),
        allow_type_widening=True,
    )
    assert shown(found) == shown(columns("p array<map<string, long>>"))
    assert found.fields[0].metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element.value"}
    ]


def test_the_message_says_how_to_allow_a_wider_type() -> None:
    with pytest.raises(InvalidRequest, match=r"int to bigint; set .*enableTypeWidening"):
        change_type(columns("a int"), ("a",), Primitive("long"), allow_type_widening=False)


# --- column mapping -------------------------------------------------------------------------------


def numbered() -> tuple[str, ...]:
    return tuple(f"id-{i}" for i in range(1, 20))


def test_new_columns_get_ids_and_physical_names_outer_first() -> None:
    new_id = iter(numbered()).__next__
    schema, highest = assign_column_ids(columns("s struct<x: int>, b int"), 0, new_id)
    assert highest == 3
    assert [(i.name, i.column_id, i.physical_name) for i in all_fields(schema)] == [
        ("s", 1, "col-id-1"),
        ("x", 2, "col-id-2"),
        ("b", 3, "col-id-3"),
    ]
    grown = Struct((*schema.fields, Field("c", Primitive("long"))))
    again, highest = assign_column_ids(grown, 9, new_id)
    assert again.fields[:2] == schema.fields
    assert (again.fields[2].column_id, highest) == (10, 10)


def test_mapping_turned_on_keeps_the_names_of_the_files() -> None:
    counter = itertools.count()
    schema, highest = assign_column_ids(
        columns("l array<struct<e: int>>"), 0, lambda: str(next(counter)), keep_names=True
    )
    assert [i.physical_name for i in all_fields(schema)] == ["l", "e"]
    assert highest == max_column_id(schema) == 2
    assert without_column_ids(schema) == columns("l array<struct<e: int>>")


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "partitions", "message"),
    [
        ("a int, A int", (), "twice"),
        ("a array<struct<x: int, X: int>>", (), r"a\.element\.X is there twice"),
        ("`a b` int", (), "contains ' '"),
        ("s struct<`a,b`: int>", (), r"s\.`a,b` contains ','"),
        ("a int", ("p",), "partition column p isn't a column"),
        ("a int, p int", ("p", "P"), "named twice"),
        ("a int, p array<int>", ("p",), "array<int> can't be a partition column"),
        ("a int, p void", ("p",), "can't be a partition column"),
        ("a int", ("a",), "all columns are partition columns"),
        ("a int, s struct<p: int>", ("s.p",), "isn't a column"),
    ],
)
def test_schemas_refused(text: str, partitions: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        validate_schema(columns(text), partitions)


def test_schemas_taken() -> None:
    validate_schema(columns("a int, p binary, `é-x` int, s struct<a: int>"), ("p",))
    validate_schema(columns("`a b` int, `c;{}` int"), (), mapped=True)
    validate_schema(Struct(()), ())
