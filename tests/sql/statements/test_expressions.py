"""A SQL text with its tables replaced: everything else stays as it was written."""

from __future__ import annotations

import dataclasses

import pytest

from txlake.sql import statements
from txlake.sql.statements import Reference, Select, SqlText, TableName


def test_only_the_named_places_change() -> None:
    text = "SELECT  sales.t.a /* keep */ FROM sales.t VERSION AS OF 1 WHERE x"
    reference = Reference(
        TableName(("sales", "t")), None, 34, 57, alias="t", alias_at=57, qualifiers=((8, 15),)
    )
    sql = SqlText(text, (reference,))
    assert sql.rewritten(lambda _: "v1") == "SELECT  `t`.a /* keep */ FROM v1 AS `t` WHERE x"


def test_a_reference_without_a_replacement_stays_with_its_qualifiers() -> None:
    reference = Reference(
        TableName(("sales", "t")), None, 22, 29, alias="t", alias_at=29, qualifiers=((7, 14),)
    )
    sql = SqlText("SELECT sales.t.a FROM sales.t", (reference,))
    assert sql.rewritten(lambda _: None) == sql.text


def test_a_fuller_name_means_the_table_where_its_database_is_in_use() -> None:
    sales = TableName(("sales", "t"))
    reference = Reference(
        TableName(("t",)),
        None,
        22,
        23,
        alias="t",
        alias_at=23,
        possible_qualifiers=((7, 14, sales),),
    )
    other = Reference(
        TableName(("t",)),
        None,
        25,
        26,
        alias="t",
        alias_at=26,
        possible_qualifiers=((7, 14, sales),),
    )
    sql = SqlText("SELECT sales.t.a FROM t, t", (reference, other))
    assert sql.in_database(lambda *_: False).rewritten(lambda _: "v") == (
        "SELECT sales.t.a FROM v AS `t`, v AS `t`"
    )
    found = sql.with_prefix("  ").in_database(lambda *names: names == (sales, TableName(("t",))))
    assert found.rewritten(lambda _: "v") == "  SELECT `t`.a FROM v AS `t`, v AS `t`"


def test_an_alias_goes_behind_what_belongs_to_the_table() -> None:
    reference = Reference(TableName(("t",)), None, 14, 15, alias="t", alias_at=36)
    sql = SqlText("SELECT * FROM t TABLESAMPLE (5 ROWS) WHERE x", (reference,))
    assert sql.rewritten(lambda _: "v") == "SELECT * FROM v TABLESAMPLE (5 ROWS) AS `t` WHERE x"


def test_the_statements_own_qualifiers_always_change() -> None:
    sql = SqlText("sales.t.a = 1", (), ((0, 7, "t"),))
    assert sql.rewritten(lambda _: None) == "`t`.a = 1"


def test_a_moved_reference_keeps_what_it_covers() -> None:
    reference = Reference(TableName(("t",)), None, 1, 2, "t", 3, ((4, 5),))
    assert reference.moved(10) == Reference(TableName(("t",)), None, 11, 12, "t", 13, ((14, 15),))


def test_statements_are_frozen_and_hashable() -> None:
    select = Select(SqlText("SELECT 1"))
    assert hash(select) == hash(Select(SqlText("SELECT 1")))
    with pytest.raises(dataclasses.FrozenInstanceError):
        select.query = SqlText("SELECT 2")  # type: ignore[misc]


def test_every_exported_class_is_a_frozen_value() -> None:
    for name in statements.__all__:
        value = getattr(statements, name)
        if dataclasses.is_dataclass(value) and isinstance(value, type):
            parameters = value.__dataclass_params__  # type: ignore[attr-defined]
            assert parameters.frozen, name
            assert "__slots__" in vars(value), name
