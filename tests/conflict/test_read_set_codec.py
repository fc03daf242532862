"""Records of read sets, and their predicates on another version of the table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conflict.cases import PROTOCOL, TABLE, A, metadata, read
from tests.log.test_predicate_codec import PREDICATES
from txlake.conflict.footprint import Read, ReadKind
from txlake.conflict.read_set import ReadSet
from txlake.conflict.read_set_codec import decode_read_sets, encode_read_set
from txlake.log.predicates import Opaque, bind, parse_predicate, to_text
from txlake.log.snapshot import Snapshot
from txlake.protocol.column_mapping import MODE_PROPERTY

UNKNOWN = ReadSet.unknown()


def column(
    name: str, kind: object = "long", physical: str | None = None, number: int = 0, **about: object
) -> dict[str, Any]:
    """A column of a schema; mapped if it has a physical name."""
    if physical is not None:
        about["delta.columnMapping.physicalName"] = physical
        about["delta.columnMapping.id"] = number
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def table(*columns: dict[str, Any], mapped: bool = True, table_id: str = "t") -> Snapshot:
    """A table of these columns."""
    schema = {"type": "struct", "fields": list(columns)}
    made = metadata(schema, **({MODE_PROPERTY: "name"} if mapped else {}))
    made = type(made)(
        id=table_id, schema_string=made.schema_string, configuration=made.configuration
    )
    return Snapshot.empty("t").apply([PROTOCOL, made, A], version=0, timestamp_ms=1)


def reads_of(text: str, snapshot: Snapshot, **about: Any) -> ReadSet:
    """The read set of one read by a condition on that version."""
    predicate = bind(parse_predicate(text), snapshot.schema)
    return ReadSet(reads=(Read(predicate=predicate, text=text, **about),))


def texts_on(base: Snapshot, *records: str) -> list[str | None]:
    """The predicates of the records as they are bound to a version, None for the whole table."""
    return [
        None if one.predicate is None else to_text(one.predicate)
        for found in decode_read_sets(records, base)
        for one in found.reads
    ]


def text_on(base: Snapshot, condition: str, written: Snapshot) -> str | None:
    """The only predicate, which was read on the version `written`, on the version `base`."""
    (found,) = texts_on(base, encode_read_set(reads_of(condition, written), written))
    return found


FULL = ReadSet(
    reads=(
        read("id > 5 AND p = '1'"),
        Read(text="all", kind=ReadKind.PLAIN, deletes_all=True),
        Read(kind=ReadKind.GUARD, files=False, is_assumed=True),
    ),
    read_files=frozenset({"a", "b"}),
    read_app_ids=frozenset({"app", "\u00fc\ud800"}),
    read_domains=frozenset({"d"}),
)


def test_a_read_set_comes_back_as_it_was() -> None:
    record = encode_read_set(FULL, TABLE)
    assert decode_read_sets([record], TABLE) == (FULL,)
    assert record.isascii()


def test_what_is_unknown_stays_unknown() -> None:
    assert decode_read_sets([encode_read_set(UNKNOWN, TABLE)], TABLE) == (UNKNOWN,)


def test_an_empty_read_set_comes_back_empty() -> None:
    assert decode_read_sets([encode_read_set(ReadSet(), TABLE)], TABLE) == (ReadSet(),)


NESTED = table(
    column("a", {"type": "struct", "fields": [column("b.c"), column("x")]}), mapped=False
)


@given(PREDICATES, st.sampled_from(ReadKind))
def test_a_record_is_written_the_same_again(predicate: Any, kind: ReadKind) -> None:
    record = encode_read_set(ReadSet(reads=(Read(predicate=predicate, kind=kind),)), NESTED)
    once = decode_read_sets([record], NESTED)[0]
    again = encode_read_set(once, NESTED)
    twice = decode_read_sets([again], NESTED)[0]
    assert encode_read_set(twice, NESTED) == again


def test_conditions_of_the_data_plane_are_left_out() -> None:
    found = ReadSet(reads=(Read(text="x", condition=object()),))
    (back,) = decode_read_sets([encode_read_set(found, TABLE)], TABLE)
    assert back.reads[0].condition is None


def test_long_texts_are_cut() -> None:
    found = ReadSet(reads=(Read(text="x" * 5_000),))
    (back,) = decode_read_sets([encode_read_set(found, TABLE)], TABLE)
    assert back.reads[0].text == "x" * 1_000


def test_many_reads_are_joined() -> None:
    many = ReadSet(reads=tuple(read(f"id > {value}") for value in range(1_000)))
    (back,) = decode_read_sets([encode_read_set(many, TABLE)], TABLE)
    assert [one.predicate for one in back.reads] == [None]


# Columns that have other names, places or types on the version where winners are checked.

MAPPED = table(column("a", "long", "p1", 1), column("b", "string", "p2", 2))


@pytest.mark.parametrize(
    ("written", "condition", "expected"),
    [
        pytest.param(
            table(column("new", "long", "p1", 1), column("a", "string", "p2", 2)),
            "new = 1 AND a = 'x'",
            "a = 1 AND b = 'x'",
            id="renamed",
        ),
        pytest.param(
            table(column("a", "long", "p1", 1), column("c", "long", "p3", 3)),
            "a = 1 AND c = 2",
            "a = 1 AND (c = 2)",
            id="added",
        ),
    ],
)
def test_columns_are_found_by_physical_name_id_and_type(
    written: Snapshot, condition: str, expected: str
) -> None:
    assert text_on(MAPPED, condition, written) == expected


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        pytest.param(table(column("a", "long", "p3", 3)), "a = 1", id="dropped and added again"),
        pytest.param(table(column("a", "double", "p1", 1)), "a > 1", id="another type"),
        pytest.param(table(column("a", "long", "p1", 7)), "a > 1", id="another id"),
        pytest.param(
            table(column("b", "string", "p2", 2, __CHAR_VARCHAR_TYPE_STRING="char(3)")),
            "b = 'x'",
            id="padded",
        ),
        pytest.param(
            table(column("b", "string", "p2", 2, __COLLATIONS={"b": "spark.UTF8_LCASE"})),
            "b = 'x'",
            id="collated",
        ),
        pytest.param(table(column("c", "long", "p3", 3)), "c IS NULL", id="null"),
        pytest.param(table(column("c", "string", "p3", 3)), "c LIKE 'x%'", id="a prefix"),
        pytest.param(table(column("c", "long", "p3", 3)), "c IN (1, 2)", id="a list"),
    ],
)
def test_a_column_that_is_not_found_may_have_any_value(written: Snapshot, condition: str) -> None:
    record = encode_read_set(reads_of(condition, written), written)
    (found,) = decode_read_sets([record], MAPPED)
    assert isinstance(found.reads[0].predicate, Opaque)
    assert found.reads[0].predicate.columns is None


def test_columns_beside_a_missing_one_still_decide() -> None:
    written = table(column("new", "long", "p1", 1), column("c", "long", "p3", 3))
    assert text_on(MAPPED, "NOT (new = 1 OR c = 2) AND new < 9", written) == (
        "NOT (a = 1 OR (c = 2)) AND a < 9"
    )


def test_conditions_that_are_not_modelled_name_the_same_columns() -> None:
    written = table(column("new", "long", "p1", 1))
    predicate = Opaque("f(new)", frozenset({("new",)}), deterministic=True)
    record = encode_read_set(ReadSet(reads=(Read(predicate=predicate),)), written)
    (found,) = decode_read_sets([record], MAPPED)
    assert found.reads[0].predicate == Opaque("f(new)", frozenset({("a",)}), deterministic=True)


def test_conditions_of_unknown_columns_stay_such() -> None:
    reads = ReadSet(reads=(Read(predicate=Opaque("f()", None, deterministic=True)),))
    (found,) = decode_read_sets([encode_read_set(reads, MAPPED)], MAPPED)
    assert found.reads[0].predicate == Opaque("f()")


def test_a_column_that_the_version_read_does_not_have_may_have_any_value() -> None:
    reads = ReadSet(reads=(Read(predicate=parse_predicate("nowhere.a = 1 AND a = 2")),))
    record = encode_read_set(reads, MAPPED)
    assert texts_on(MAPPED, record) == ["(nowhere.a = 1) AND a = 2"]


def test_fields_of_structs_are_found() -> None:
    def nested(outer: str, inner: str) -> Snapshot:
        kind = {"type": "struct", "fields": [column(inner, "long", "p2", 2)]}
        return table(column(outer, kind, "p1", 1))

    assert text_on(nested("s", "x"), "t.y = 1", nested("t", "y")) == "s.x = 1"


PLAIN = table(column("a"), column("b"), mapped=False)


def test_a_column_that_was_mapped_since_has_its_old_name_as_physical_name() -> None:
    written = table(column("new", "long", "a", 1), column("b", "long", "p2", 3))
    assert text_on(PLAIN, "new = 1", written) == "a = 1"
    record = encode_read_set(reads_of("b = 1", written), written)
    (found,) = decode_read_sets([record], PLAIN)
    assert isinstance(found.reads[0].predicate, Opaque)


def test_without_mapping_columns_are_found_by_name() -> None:
    assert text_on(PLAIN, "a = 1", table(column("c"), column("a"), mapped=False)) == "a = 1"


def test_names_tell_nothing_after_columns_were_mapped_and_unmapped() -> None:
    between = table(column("b", "long", "a", 1))
    after = table(column("b"), mapped=False)
    records = [
        encode_read_set(reads_of("b = 1", PLAIN, deletes_all=True), PLAIN),
        encode_read_set(ReadSet(), between),
        encode_read_set(reads_of("b = 1", after, deletes_all=True), after),
    ]
    assert texts_on(PLAIN, *records) == ["b = 1", None]
    assert [one.reads[0].deletes_all for one in decode_read_sets(records, PLAIN) if one.reads] == [
        True,
        False,
    ]
    assert texts_on(MAPPED, records[2]) == [None]
    assert texts_on(PLAIN, "?", records[2])[-1] is None


def test_reads_of_a_table_that_replaced_this_one_are_of_the_whole_table() -> None:
    written = table(column("a"), mapped=False, table_id="other")
    assert text_on(PLAIN, "a = 1", written) is None


def test_a_file_that_the_base_does_not_have_is_the_whole_table() -> None:
    record = encode_read_set(ReadSet(read_files=frozenset({"a", "new"})), TABLE)
    (found,) = decode_read_sets([record], TABLE)
    assert found == ReadSet(reads=(Read(text="new"),), read_files=frozenset({"a"}))


# What can't be decoded counts as more than was read.


def changed(**parts: object) -> str:
    """The record of a full read set with other parts."""
    return json.dumps(json.loads(encode_read_set(FULL, TABLE)) | parts)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut"),
        pytest.param("[]", id="no object"),
        pytest.param("[" * 100_000, id="nested too deeply"),
        pytest.param(changed(version=2), id="version"),
        pytest.param(changed(version="1"), id="version as text"),
        pytest.param(changed(more=1), id="a further part"),
        pytest.param(changed(files=[1]), id="files"),
        pytest.param(changed(files={}), id="no list"),
        pytest.param(changed(app_ids=[None]), id="application ids"),
        pytest.param(changed(domains=[[]]), id="domains"),
        pytest.param(changed(columns=[[["id"], "id", None, "x"]]), id="a column"),
        pytest.param(changed(columns=[[["id"], [1], None, "x"]]), id="a column's name"),
        pytest.param(changed(reads=[{}]), id="a read"),
        pytest.param(changed(reads=[None]), id="no read"),
    ],
)
def test_a_record_that_cannot_be_decoded_is_unknown(record: str) -> None:
    known = encode_read_set(FULL, TABLE)
    assert decode_read_sets([record, known], TABLE)[0] == UNKNOWN


def read_record(**parts: object) -> str:
    """The record of one read with other parts."""
    one = json.loads(encode_read_set(ReadSet(reads=(FULL.reads[0],)), TABLE))
    return json.dumps(one | {"reads": [one["reads"][0] | parts]})


@pytest.mark.parametrize("parts", [{"kind": "watch"}, {"files": 1}, {"more": 1}, {"text": 5}])
def test_a_read_of_an_unknown_form_makes_all_unknown(parts: dict[str, object]) -> None:
    assert decode_read_sets([read_record(**parts)], TABLE) == (UNKNOWN,)


@pytest.mark.parametrize(
    "predicate",
    [
        {"xor": []},
        {"and": [{"is_null": ["id"]}, {"like": [["id"], "x"]}]},
        {"compare": [["id"], "=", {"interval": 1}]},
        {"compare": [["id"], "=", {"time": [10**30, True]}]},
        5,
    ],
    ids=str,
)
def test_a_predicate_of_an_unknown_form_is_the_whole_table(predicate: object) -> None:
    (found,) = decode_read_sets([read_record(predicate=predicate, deletes_all=True)], TABLE)
    assert found == ReadSet(reads=(Read(text=FULL.reads[0].text),))


def test_the_form_of_a_record_is_as_documented() -> None:
    assert json.loads(encode_read_set(FULL, TABLE)) == {
        "version": 1,
        "table": "t",
        "mapped": False,
        "columns": [
            [["id"], ["id"], None, '["long",false]'],
            [["p"], ["p"], None, '["string",true]'],
        ],
        "reads": [
            {
                "kind": "for_write",
                "predicate": {
                    "and": [{"compare": [["id"], ">", 5]}, {"compare": [["p"], "=", "1"]}]
                },
                "text": "id > 5 AND p = '1'",
                "files": True,
                "deletes_all": False,
                "is_assumed": False,
            },
            {
                "kind": "plain",
                "predicate": None,
                "text": "all",
                "files": True,
                "deletes_all": True,
                "is_assumed": False,
            },
            {
                "kind": "guard",
                "predicate": None,
                "text": None,
                "files": False,
                "deletes_all": False,
                "is_assumed": True,
            },
        ],
        "files": ["a", "b"],
        "app_ids": ["app", "\u00fc\ud800"],
        "domains": ["d"],
        "complete": True,
    }
