"""Which changes of how columns are mapped there are, and what becomes of ids and physical names."""

from __future__ import annotations

import json
from itertools import count

import pytest

from txlake.errors import InvalidRequest
from txlake.protocol.actions import Metadata
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.mapping_change import (
    ColumnMapping,
    check_mapped,
    schema_by_metadata,
    with_mapping,
    with_restored_mapping,
)
from txlake.protocol.types import parse_schema

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"


def column(
    name: str, identity: int | None = None, physical: str | None = None, kind: object = "long"
) -> dict[str, object]:
    about: dict[str, object] = {}
    if identity is not None:
        about["delta.columnMapping.id"] = identity
    if physical is not None:
        about["delta.columnMapping.physicalName"] = physical
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def struct(*columns: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(columns)}


def array(element: object) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True}


def of(mode: str | None, *columns: dict[str, object], most: str | None = None) -> Metadata:
    configuration = {key: text for key, text in ((MODE, mode), (MAX_ID, most)) if text is not None}
    return Metadata(id="t", schema_string=json.dumps(struct(*columns)), configuration=configuration)


def follow(new: Metadata, old: Metadata | None, mode: str | None = "none", **how: bool) -> Metadata:
    numbers = count(1)
    before = None if old is None else ColumnMapping(mode, old)
    given = {"replaces": False, **how}
    return with_mapping(new, before, lambda: f"new{next(numbers)}", table="t", **given)


def names(metadata: Metadata) -> list[tuple[str, int | None, str]]:
    schema = parse_schema(metadata.schema_string)
    return [(item.name, item.column_id, item.physical_name) for item in all_fields(schema)]


PLAIN = of(None, column("a"), column("s", kind=struct(column("x"))))
NAMED = of(
    "name",
    column("a", 1, "p-a"),
    column("s", 2, "p-s", struct(column("x", 3, "p-x"))),
    most="7",
)
BY_ID = of("id", column("a", 1, "p-a"), most="1")


def test_a_new_table() -> None:
    assert follow(PLAIN, None) is PLAIN
    made = follow(of("name", column("a"), column("b", 5, "mine")), None)
    assert names(made) == [("a", 6, "col-new1"), ("b", 5, "mine")]
    assert made.configuration[MAX_ID] == "6"
    bare = follow(of("none", column("a", 1, "p-a")), None)
    assert names(bare) == [("a", None, "a")]


def test_one_that_replaces_another_begins_anew_but_never_uses_an_id_again() -> None:
    for mode in ("name", "id"):
        made = follow(of(mode, column("a")), NAMED, "name", replaces=True)
        assert names(made) == [("a", 8, "col-new1")]
    bare = follow(of(None, column("a")), NAMED, "name", replaces=True)
    assert (names(bare), bare.configuration[MAX_ID]) == ([("a", None, "a")], "7")


def test_from_none_to_name_files_keep_their_names() -> None:
    made = follow(of(" Name ", column("a"), column("s", kind=struct(column("x")))), PLAIN)
    assert names(made) == [("a", 1, "a"), ("s", 2, "s"), ("x", 3, "x")]
    assert made.configuration[MAX_ID] == "3"


@pytest.mark.parametrize(
    "column_",
    [
        column("a", 1, "other"),
        column("A", 1, "other"),
        column("s", 1, "s", struct(column("x", 2, "other"))),
    ],
)
def test_from_none_to_name_they_keep_them(column_: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="expected the name that it has in the data files"):
        follow(of("name", column_), PLAIN)


def test_what_was_left_of_an_earlier_mapping_is_not_taken_for_the_names_in_files() -> None:
    left = of(None, column("a", 1, "p-a"))
    assert follow(of(None, column("a", 1, "p-a")), left) is not None
    with pytest.raises(InvalidRequest, match=r"'a', as delta.columnMapping.physicalName, found"):
        follow(of("name", column("a", 1, "p-a")), left)


@pytest.mark.parametrize(
    ("before", "after"),
    [("name", "none"), ("name", None), ("name", "id"), ("id", "name"), ("id", None), (None, "id")],
)
def test_all_other_changes_of_mode_are_refused(before: str | None, after: str | None) -> None:
    old, new = of(before, column("a", 1, "p-a")), of(after, column("a", 1, "p-a"))
    now, then = before or "none", after or "none"
    with pytest.raises(InvalidRequest, match=f"t: .* can't change from '{now}' to '{then}'"):
        follow(new, old, now)


def test_a_mode_that_the_protocol_does_not_let_count_is_none() -> None:
    made = follow(of("name", column("a"), most="0"), of("name", column("a")), "none")
    assert names(made) == [("a", 1, "a")]
    with pytest.raises(InvalidRequest, match="from 'none' to 'id'"):
        follow(of("id", column("a")), of("id", column("a")), "none")


def test_columns_that_were_there_keep_what_they_have() -> None:
    bare = of("name", column("A"), column("s", kind=struct(column("x"), column("y"))), column("n"))
    made = follow(bare, NAMED, "name")
    assert names(made) == [
        ("A", 1, "p-a"),
        ("s", 2, "p-s"),
        ("x", 3, "p-x"),
        ("y", 8, "col-new1"),
        ("n", 9, "col-new2"),
    ]
    assert made.configuration[MAX_ID] == "9"


def test_columns_inside_arrays_and_maps_do_too() -> None:
    def kinds(*inner: dict[str, object]) -> list[dict[str, object]]:
        pairs = {"type": "map", "keyType": "string", "valueContainsNull": True}
        return [
            column("l", 1, "p-l", array(struct(inner[0]))),
            column("m", 2, "p-m", {**pairs, "valueType": struct(inner[1])}),
        ]

    old = of("id", *kinds(column("x", 3, "p-x"), column("y", 4, "p-y")), most="4")
    bare = of("id", *kinds(column("x"), column("y")), most="4")
    assert names(follow(bare, old, "id")) == names(old)


def test_a_column_that_is_renamed_dropped_or_comes_back() -> None:
    renamed = of("name", column("b", 1, "p-a"), column("old", 5, "p-old"), most="7")
    assert names(follow(renamed, NAMED, "name")) == names(renamed)
    anew = of("name", column("a", 8, "other"), most="7")
    made = follow(anew, NAMED, "name")
    assert names(made) == [("a", 8, "other")]
    assert made.configuration[MAX_ID] == "8"


@pytest.mark.parametrize(
    "wrong",
    [
        column("a", 1, "other"),
        column("a", 4, "p-a"),
        column("a", 2, "p-a"),
        column("z", None, "p-a"),
        column("z", 1),
        column("s", 2, "p-s", struct(column("x", 9, "p-x"))),
    ],
)
def test_an_id_and_its_physical_name_stay_together(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=r"expected the id . with the physical name 'p-"):
        follow(of("name", wrong, most="7"), NAMED, "name")


def test_a_physical_name_is_that_of_its_own_struct() -> None:
    inside = column("s", 2, "p-s", struct(column("x", 3, "p-x"), column("y", 9, "p-a")))
    assert ("y", 9, "p-a") in names(follow(of("name", inside, most="7"), NAMED, "name"))


def test_without_mapping_a_column_has_neither() -> None:
    made = follow(of(None, column("a", 1, "p-a"), column("n", 2, "p-n")), PLAIN)
    assert names(made) == [("a", None, "a"), ("n", None, "n")]


def test_the_same_columns_are_left_as_they_are_written() -> None:
    odd = of("name", column("a"), column("b", 1, "x"), most="many")
    assert follow(odd, odd, "name") is odd


def test_the_highest_id_only_grows() -> None:
    lower = of("name", *json.loads(NAMED.schema_string or "")["fields"], most="1")
    assert follow(lower, NAMED, "name").configuration[MAX_ID] == "7"


def back(new: Metadata, old: Metadata) -> Metadata:
    return with_restored_mapping(new, old, lambda: "new", table="t")


def test_what_an_earlier_version_had_comes_back() -> None:
    plain = back(PLAIN, NAMED)
    assert (names(plain), plain.configuration) == (names(PLAIN), {MAX_ID: "7"})
    assert back(of(None, column("a"), most="9"), BY_ID).configuration[MAX_ID] == "9"
    for mapped in (NAMED, BY_ID):
        assert back(mapped, PLAIN) == mapped
    again = back(BY_ID, NAMED)
    assert (names(again), again.configuration[MAX_ID]) == (names(BY_ID), "7")
    assert names(back(of("name", column("a")), BY_ID)) == [("a", 2, "a")]
    with pytest.raises(InvalidRequest, match="expected a whole number, found 'many'"):
        back(of("name", column("a")), of("name", most="many"))


def test_ids_are_not_guessed() -> None:
    old = of("name", column("a", 1, "p-a"), most="many")
    with pytest.raises(InvalidRequest, match="maxColumnId': expected a whole number, found 'many'"):
        follow(of("name", column("a"), column("n"), most="many"), old, "name")
    renamed = of("name", column("b", 1, "p-a"), most="many")
    assert follow(renamed, old, "name") is renamed


def test_a_mode_that_is_not_understood_can_be_left_for_one_that_fits() -> None:
    bare, full = of("index", column("a")), of("index", column("a", 1, "p-a"))
    assert follow(bare, bare, None) is bare
    with pytest.raises(InvalidRequest, match="isn't understood; set it to none, name or id"):
        follow(of("index", column("b")), bare, None)
    assert names(follow(of("none", column("a")), bare, None)) == [("a", None, "a")]
    assert names(follow(of("id", column("a", 1, "p-a")), full, None)) == [("a", 1, "p-a")]
    for new, old in ((of(None, column("a", 1, "p-a")), full), (of("name", column("a")), bare)):
        with pytest.raises(InvalidRequest, match="column a doesn't say so"):
            follow(new, old, None)
    with pytest.raises(InvalidRequest, match="isn't understood"):
        follow(of("index", column("a", 1, "p-a")), NAMED, "name")


def test_ids_and_names_are_unique() -> None:
    check_mapped(parse_schema(NAMED.schema_string), table="t")
    for columns, message in (
        ([column("a", 1, "x"), column("b", 1, "y")], "share one column id"),
        ([column("a", 1, "x"), column("b", None, "y")], "share one column id"),
        ([column("a", 1, "x"), column("b", 2, "x")], "share the physical name 'x'"),
        (
            [column("s", 1, "s", struct(column("a", 2, "x"), column("b", 3, "x")))],
            "share the physical name 'x'",
        ),
    ):
        with pytest.raises(InvalidRequest, match=message):
            check_mapped(parse_schema(of("name", *columns).schema_string), table="t")


def test_the_schema_as_the_metadata_asks_for_it() -> None:
    assert schema_by_metadata(BY_ID).fields[0].physical_name == "p-a"
    left = schema_by_metadata(of("none", column("a", 1, "p-a")))
    assert (left.fields[0].physical_name, left.fields[0].column_id) == ("a", None)
