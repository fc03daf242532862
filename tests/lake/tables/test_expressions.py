"""Conditions, assignments and names of columns become statement parts."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException

from txlake.lake.tables.expressions import (
    assignments_of,
    column_path,
    condition_of,
    resolve_assignments,
)
from txlake.sql.statements import Assignment, Reference, SqlText, TableName


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("key", ("key",)),
        ("t.key", ("t", "key")),
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`.c", ("a.b", "c")),
        ("`a``b`", ("a`b",)),
        ("with space", ("with space",)),
        ("1st-ünicode", ("1st-ünicode",)),
    ],
)
def test_names_are_split_at_dots_outside_of_backquotes(name: str, parts: tuple[str, ...]) -> None:
    assert column_path(name) == parts


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "`a`b", "``"])
def test_what_is_no_name_is_a_parse_error(name: str) -> None:
    with pytest.raises(ParseException, match="no column's name"):
        column_path(name)


def test_a_text_stays_as_it_was_written() -> None:
    text = "key = 'a'  or\n value IN (1, 2) -- why"
    found = condition_of(text, ())
    assert isinstance(found, SqlText)
    assert found.text.strip() in text
    assert found.text.startswith("key = 'a'  or\n value IN (1, 2)")


def test_an_expression_that_only_spark_knows_goes_to_spark() -> None:
    text = "exists(xs, x -> x <=> 1) AND v:a.b::int = 1 AND a !> b"
    assert condition_of(text, ()) == SqlText(text)


def test_the_tables_of_a_subquery_are_found() -> None:
    found = condition_of("id IN (SELECT id FROM db.other)", ())
    assert isinstance(found, SqlText)
    assert [type(one) for one in found.references] == [Reference]
    assert found.references[0].table == TableName(("db", "other"))


@pytest.mark.parametrize("text", ["", "  ", "-- nothing", "'open", "id IN (SELECT FROM)"])
def test_what_is_no_expression_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseException):
        condition_of(text, ())


def test_the_tables_full_name_becomes_its_alias() -> None:
    found = condition_of("db.t.id = 1", ((TableName(("db", "t")), "t"),))
    assert isinstance(found, SqlText)
    assert found.rewritten(lambda _: None) == "`t`.id = 1"


def assigned(*names: str) -> tuple[Assignment, ...]:
    return tuple(Assignment(column_path(name), SqlText("1")) for name in names)


@pytest.mark.parametrize(
    ("name", "qualifier", "expected"),
    [
        ("value", ("t",), ("value",)),
        ("t.value", ("t",), ("value",)),
        ("T.value", ("t",), ("value",)),
        ("db.t.value", ("db", "t"), ("value",)),
        ("t.value", ("db", "t"), ("value",)),
        ("t.nested.a", ("t",), ("nested", "a")),
        ("nested.a", ("t",), ("nested", "a")),
        ("nested.id", ("nested",), ("id",)),  # the qualifier wins over the struct
        ("nested.a", ("nested",), ("nested", "a")),  # unless the table has no such column
        ("t.new", ("t",), ("new",)),
        ("t", ("t",), ("t",)),
        ("s.value", ("t",), ("s", "value")),
        ("t.value", (), ("t", "value")),
    ],
)
def test_the_qualifier_goes(
    name: str, qualifier: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    columns = ("id", "key", "value", "nested")
    assert resolve_assignments(assigned(name), qualifier, columns)[0].column == expected


def test_a_column_is_assigned_once() -> None:
    with pytest.raises(AnalysisException, match="VALUE is assigned twice"):
        resolve_assignments(assigned("t.value", "VALUE"), ("t",), ("value",))


def test_an_empty_mapping_assigns_nothing() -> None:
    assert assignments_of({}, (), "'set'") == ()
