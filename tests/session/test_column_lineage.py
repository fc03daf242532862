"""Which columns the columns of a query and of a statement are made of, by their texts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.context import Context
from txlake.session.lineage.columns import BaseTable, Origin, Origins, Text, Unsure
from txlake.session.lineage.writes import (
    WRITES_MAX,
    ColumnOrigins,
    nothing,
    reading_of,
    together,
)
from txlake.session.transaction import Transaction
from txlake.session.view_queries import Viewed
from txlake.sql import parse
from txlake.sql.statements import Insert, NativeColumn, NativeFrame, SqlText, Table, TableName

TABLES = {
    "orders": ("id", "Customer", "amount", "n", "day"),
    "customers": ("id", "name", "Größe cm", "a.b"),
    "target": ("id", "name", "total"),
    "named": ("named", "id"),
    "odd": ("current_date", "x"),
}


class Names:
    """What names mean: the tables above, and views."""

    def __init__(self, views: Mapping[str, Viewed]) -> None:
        self.views = views

    def find(self, table: Table) -> Any:
        name = table.name.lower() if isinstance(table, TableName) else ""
        url = f"file:///lake/{name}"
        store = SimpleNamespace(url=url)
        return SimpleNamespace(branch=None, store=store, key=name) if name in TABLES else None

    def viewed(self, table: TableName) -> Viewed | None:
        return self.views.get(table.name.lower())

    def is_same(self, one: TableName, other: TableName) -> bool:
        return one.name.lower() == other.name.lower()

    def get(self, handle: Any) -> Any:
        schema = Struct(tuple(Field(name, Primitive("integer")) for name in TABLES[handle.key]))
        return SimpleNamespace(view=SimpleNamespace(has_metadata=True, schema=schema))


def a_context(
    views: Mapping[str, Viewed] | None = None, rules: TextRules = DEFAULT_RULES
) -> Context:
    names = Names(views or {})
    made: Any = SimpleNamespace(
        tables=names,
        rules=rules,
        engine=SimpleNamespace(branch=None),
        transaction=SimpleNamespace(tables=names),
        within=lambda view: made,
    )
    return cast(Context, made)


def short(origins: Origins) -> set[str]:
    """Origins in words: `orders.id`, then the subtype unless it is IDENTITY, with `~` if
    indirect.
    """
    return {
        f"{one.dataset.removeprefix('/lake/')}.{one.column}"
        + ("" if one.subtype == "IDENTITY" else f" {'~' * (one.kind == 'INDIRECT')}{one.subtype}")
        for one in origins
    }


def written(text: str, **views: Viewed) -> ColumnOrigins | None:
    """What a statement's columns are made of."""
    [statement] = parse(text)
    table = getattr(statement, "table", None) or getattr(statement, "target", None)
    reading = reading_of(a_context(views), statement)
    return together([reading], TABLES[cast(TableName, table).name.lower()])


def columns(text: str, **views: Viewed) -> dict[str, set[str]]:
    found = written(text, **views)
    return {} if found is None else {name: short(one) for name, one in found.columns.items()}


def read(query: str) -> list[set[str]]:
    """What each column of a query is made of."""
    sources = {
        name: BaseTable("file", f"/lake/{name}", columns) for name, columns in TABLES.items()
    }
    return [short(origins) for _, origins in Text(query, sources).relation().columns]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT ID, 1, n FROM orders", [{"orders.id"}, set(), {"orders.n"}]),
        ("SELECT o.id AS x FROM orders AS O", [{"orders.id"}]),
        ("SELECT n + id AS x FROM orders",
         [{"orders.id TRANSFORMATION", "orders.n TRANSFORMATION"}]),
        ("SELECT count(*), count(n), max(n + id) FROM orders",
         [set(), {"orders.n AGGREGATION"}, {"orders.id AGGREGATION", "orders.n AGGREGATION"}]),
        ("SELECT own_function(n) FROM orders", [{"orders.n "}]),
        # Letter case, odd names, fields of structs.
        ("SELECT `größe CM`, `a.b` FROM customers", [{"customers.Größe cm"}, {"customers.a.b"}]),
        ("SELECT customer.name.first FROM orders", [{"orders.Customer TRANSFORMATION"}]),
        ("SELECT orders.customer.x FROM orders", [{"orders.Customer TRANSFORMATION"}]),
        ("SELECT e FROM (SELECT customer.a.b.c.d.e FROM orders)",
         [{"orders.Customer TRANSFORMATION"}]),
        ("SELECT g FROM (SELECT named_struct('g', n).g FROM orders)", None),
        # A source's name comes before a column's.
        ("SELECT n.id FROM orders AS n", [{"orders.id"}]),
        # CTEs and subqueries.
        ("WITH c AS (SELECT id AS k FROM orders), d(z) AS (SELECT k FROM c) SELECT z FROM d",
         [{"orders.id"}]),
        ("SELECT x.id FROM (SELECT id FROM odd p CROSS JOIN (SELECT id FROM customers)) x",
         [{"customers.id"}]),
        ("WITH orders AS (SELECT name AS id FROM customers) SELECT id FROM orders",
         [{"customers.name"}]),
        ("SELECT x FROM (SELECT sum(n) AS x FROM orders)", [{"orders.n AGGREGATION"}]),
        ("SELECT (SELECT max(n) FROM orders o WHERE o.id = c.id) FROM customers c",
         [{"orders.n AGGREGATION", "orders.id ~FILTER", "customers.id ~FILTER"}]),
        # An alias of the list: a column of that name comes first.
        ("SELECT n + 1 AS id, id AS z FROM orders",
         [{"orders.n TRANSFORMATION"}, {"orders.id"}]),
        ("SELECT n + 1 AS m, m AS z FROM orders",
         [{"orders.n TRANSFORMATION"}, {"orders.n TRANSFORMATION"}]),
        # Unions.
        ("SELECT id FROM orders UNION ALL SELECT upper(name) FROM customers",
         [{"orders.id", "customers.name TRANSFORMATION"}]),
        ("SELECT id FROM orders EXCEPT SELECT id FROM customers", [{"orders.id"}]),
        # Joins of tables with columns of one name.
        ("SELECT o.id, c.id FROM orders o JOIN customers c ON o.id = c.id",
         [{"orders.id"}, {"customers.id"}]),
        ("SELECT id FROM orders JOIN customers USING (id)", [{"orders.id"}]),
        ("SELECT id FROM orders RIGHT JOIN customers USING (id)", [{"customers.id"}]),
        ("SELECT id FROM orders FULL JOIN customers USING (id)",
         [{"orders.id TRANSFORMATION", "customers.id TRANSFORMATION"}]),
        ("SELECT id FROM orders LEFT SEMI JOIN customers ON orders.id = customers.id",
         [{"orders.id"}]),
        ("SELECT * FROM odd JOIN target USING (x)", None),
        ("SELECT * FROM (SELECT n, id FROM orders) JOIN (SELECT name, id FROM target) USING (id)",
         [{"orders.id"}, {"orders.n"}, {"target.name"}]),
        # Choices and windows.
        ("SELECT CASE WHEN n > 1 THEN id ELSE 0 END, if(n > 1, id, 0) FROM orders",
         [{"orders.n ~CONDITIONAL", "orders.id TRANSFORMATION"}] * 2),
        ("SELECT sum(n) OVER (PARTITION BY id ORDER BY day), lag(n) OVER (ORDER BY id) FROM orders",
         [{"orders.n AGGREGATION", "orders.id ~WINDOW", "orders.day ~WINDOW"},
          {"orders.n TRANSFORMATION", "orders.id ~WINDOW"}]),
        ("SELECT * FROM VALUES (1, 2) AS t(a, b)", [set(), set()]),
        ("SELECT t.*, o.id FROM (SELECT 1 AS a) t, orders o", [set(), {"orders.id"}]),
        # Nothing certain.
        ("SELECT id FROM orders, customers", None),
        ("SELECT * EXCEPT (id) FROM orders", None),
        ("SELECT nothing FROM orders", None),
        ("SELECT id FROM range(3)", None),
        ("SELECT id FROM elsewhere", None),
        ("SELECT a FROM orders LATERAL VIEW explode(n) AS a", None),
        ("SELECT explode(n) FROM orders", None),
        ("SELECT transform(n, id -> id + 1) FROM orders", None),
        ("SELECT datediff(day, id, n) FROM orders", None),
        ("SELECT current_date FROM odd", None),
        ("SELECT identifier('n') FROM orders", None),
        ("SELECT struct(*) FROM orders", None),
        ("SELECT sum(n) OVER w FROM orders WINDOW w AS (PARTITION BY id)", None),
        ("SELECT id FROM orders NATURAL JOIN customers", None),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", None),
        ("SELECT * FROM orders PIVOT (sum(n) FOR id IN (1, 2))", None),
        ("WITH RECURSIVE c AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM c) SELECT k FROM c", None),
        ("SELECT id FROM orders UNION ALL SELECT id, n FROM orders", None),
        ("SELECT (SELECT id, n FROM orders)", None),
        ("SELECT :x FROM orders", None),
    ],
)  # fmt: skip
def test_a_querys_columns_are_made_of(query: str, expected: list[set[str]] | None) -> None:
    if expected is None:
        with pytest.raises(Unsure):
            read(query)
    else:
        assert read(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM orders WHERE n > 1", {"orders.n ~FILTER"}),
        (
            "SELECT o.id FROM orders o JOIN customers c ON o.id = c.id",
            {"orders.id ~JOIN", "customers.id ~JOIN"},
        ),
        (
            "SELECT n, max(id) AS m FROM orders GROUP BY 1 HAVING max(day) > 1 ORDER BY m",
            {"orders.n ~GROUP_BY", "orders.day ~FILTER", "orders.id ~SORT"},
        ),
        (
            "SELECT id FROM orders WHERE EXISTS (SELECT name FROM customers c WHERE c.id = n)",
            {"customers.id ~FILTER", "orders.n ~FILTER"},
        ),
        ("SELECT n + 1 AS n FROM orders ORDER BY upper(n)", None),
        ("SELECT max(id) FROM orders GROUP BY ALL", None),
        ("SELECT id FROM orders WHERE exists(n, x -> x > 1)", None),
        ("SELECT id FROM orders INTERSECT SELECT id FROM customers", None),
    ],
)
def test_what_decides_the_rows_is_told_if_all_of_it_is_certain(
    query: str, expected: set[str] | None
) -> None:
    sources = {name: BaseTable("file", f"/lake/{name}", one) for name, one in TABLES.items()}
    whole = Text(query, sources).relation().whole
    assert (None if whole is None else short(whole)) == expected


def test_an_insert_assigns_by_position_by_list_and_by_name() -> None:
    expected = {"id": {"orders.id"}, "total": {"orders.n TRANSFORMATION"}}
    assert columns("INSERT INTO target SELECT id, 'x', n * 2 FROM orders") == expected
    assert columns("INSERT INTO target (Total, ID) SELECT n * 2, id FROM orders") == expected
    assert columns("INSERT INTO target BY NAME SELECT n * 2 AS TOTAL, id FROM orders") == expected
    assert columns("INSERT OVERWRITE target SELECT id, 'x', -n FROM orders") == expected
    assert columns("INSERT INTO target VALUES (1, (SELECT max(n) FROM orders), 3)") == {
        "name": {"orders.n AGGREGATION"}
    }
    assert columns("INSERT INTO target PARTITION (id = 1) SELECT name, 2 FROM customers") == {
        "name": {"customers.name"}
    }


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO target SELECT id FROM orders",
        "INSERT INTO target (id) SELECT id, n FROM orders",
        "INSERT INTO target BY NAME SELECT id, n AS id FROM orders",
        "INSERT INTO target BY NAME SELECT max(id) FROM orders",
        "INSERT INTO target BY NAME SELECT n FROM orders",
        "INSERT INTO target SELECT id, n, day FROM orders VERSION AS OF 3",
        "INSERT INTO target SELECT id, n, txlake_lineage_0.day FROM orders AS txlake_lineage_0",
        "INSERT INTO target VALUES (1, 2, 3)",
        "INSERT INTO target SELECT 1, 2, @@SPID",
        "INSERT INTO target SELECT * FROM target TIMESTAMP AS OF '2026-01-01'",
        "INSERT INTO target SELECT id, n, day FROM unknown_view",
        "CREATE OR REPLACE TABLE target AS SELECT id, name, total FROM target",
        "UPDATE named SET named.id = id",
        "DELETE FROM target WHERE id = 1",
        "UPDATE target SET total = 1",
        "COPY INTO target FROM '/tmp/x' FILEFORMAT = CSV",
    ],
)
def test_what_isnt_certain_or_has_no_origin_isnt_told(text: str) -> None:
    assert written(text) is None


def test_an_update_assigns_its_columns() -> None:
    found = written("UPDATE target AS t SET total = t.total + 1, name = id WHERE t.id > 3")
    assert found is not None
    assert {name: short(one) for name, one in found.columns.items()} == {
        "name": {"target.id"},
        "total": {"target.total TRANSFORMATION"},
    }
    assert short(found.whole or frozenset()) == {"target.id ~FILTER"}
    assert columns("UPDATE target SET total = (SELECT max(n) FROM orders), name = DEFAULT") == {
        "total": {"orders.n AGGREGATION"}
    }
    assert columns("UPDATE target SET Name.first = id") == {"name": {"target.id TRANSFORMATION"}}
    assert columns("UPDATE target AS t SET t.name = t.id") == {"name": {"target.id"}}


def test_a_merge_assigns_what_its_clauses_do() -> None:
    found = written(
        "MERGE INTO target t USING (SELECT id, n FROM orders WHERE day > 1) s ON t.id = s.id "
        "WHEN MATCHED AND s.n > 3 THEN UPDATE SET total = t.total + s.n "
        "WHEN NOT MATCHED THEN INSERT (id, total) VALUES (s.id, n) "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'x'"
    )
    assert found is not None
    assert {name: short(one) for name, one in found.columns.items()} == {
        "id": {"orders.id"},
        "total": {"target.total TRANSFORMATION", "orders.n TRANSFORMATION", "orders.n"},
    }
    assert short(found.whole or frozenset()) == {
        *("orders.day ~FILTER", "orders.n ~FILTER"),
        *("orders.id ~JOIN", "target.id ~JOIN"),
    }
    star = "MERGE INTO target USING customers ON target.id = customers.id WHEN "
    expected = {"id": {"customers.id"}, "name": {"customers.name"}}
    assert columns(f"{star} NOT MATCHED THEN INSERT *") == expected
    assert columns(f"{star} MATCHED THEN UPDATE SET *") == expected
    assert columns(f"{star} MATCHED THEN DELETE") == {}
    # In both tables.
    assert columns(f"{star} MATCHED THEN UPDATE SET total = name") == {}


def test_a_new_table_has_the_columns_of_its_query() -> None:
    query = "SELECT id, max(name), n AS total FROM (SELECT id, n, 'x' AS name FROM orders)"
    assert columns(f"CREATE TABLE target AS {query} GROUP BY ALL") == {
        "id": {"orders.id"},
        "total": {"orders.n"},
    }
    assert columns("CREATE TABLE target AS SELECT n AS total, id, 1 AS name FROM orders") == {}


def a_view(query: str, *names: str) -> Viewed:
    return Viewed(name="default.v", database="default", query=SqlText(query), columns=names)


def test_a_view_is_read_down_to_its_tables() -> None:
    [select] = parse("SELECT id, amount * 2 AS double FROM orders")
    text = "INSERT INTO target (id, total) SELECT * FROM v"
    expected = {"id": {"orders.id"}, "total": {"orders.amount TRANSFORMATION"}}
    view = replace(a_view(""), query=cast(Any, select).query)
    assert columns(text, v=view) == expected
    named = replace(view, columns=("k", "d"))
    assert columns("INSERT INTO target (id, total) SELECT k, d FROM v", v=named) == expected
    assert columns("INSERT INTO target (id, total) SELECT id, 1 FROM v", v=named) == {}
    # A view that reads what isn't known, and one that Spark alone can read.
    assert columns(text, v=a_view("SELECT id, n FROM elsewhere")) == {}
    assert columns(text, v=replace(view, columns=("k", "d", "e"))) == {}


def test_values_of_pyspark_are_not_read() -> None:
    [statement] = parse("UPDATE target SET total = id WHERE id = 1")
    update = cast(Any, statement)
    [assignment] = update.assignments
    native = replace(assignment, value=NativeColumn(object()))
    assert reading_of(a_context(), replace(update, assignments=(native,))) is None
    # Of a condition only what decides the rows isn't told.
    reading = reading_of(a_context(), replace(update, condition=NativeColumn(object())))
    found = together([reading], TABLES["target"])
    assert found is not None
    assert found.whole is None
    assert short(found.columns["total"]) == {"target.id"}
    frame = Insert(table=update.table, source=NativeFrame(object()))
    assert reading_of(a_context(), frame) is None


@pytest.mark.parametrize("rules", [{"case_sensitive": True}, {"names_in_double_quotes": True}])
def test_texts_that_a_session_reads_in_its_own_way_are_not_read(rules: dict[str, Any]) -> None:
    [statement] = parse("UPDATE target SET total = id")
    assert reading_of(a_context(rules=replace(DEFAULT_RULES, **rules)), statement) is None
    assert reading_of(a_context(), statement) is not None


def test_several_statements_of_a_transaction_are_told_together() -> None:
    def one(*texts: str) -> Any:
        readings = [reading_of(a_context(), *parse(text)) for text in texts]
        return together(readings, TABLES["target"])

    update = "UPDATE target SET total = id"
    insert = "INSERT INTO target (id, total) SELECT id, n FROM orders WHERE day > 1"
    found = one(
        update, insert, "DELETE FROM target WHERE id = 3", "INSERT INTO target VALUES (1,2,3)"
    )
    assert short(found.columns["total"]) == {"target.id", "orders.n"}
    assert short(found.columns["id"]) == {"orders.id"}
    assert short(found.whole) == {"orders.day ~FILTER"}
    assert one(update, "INSERT INTO target SELECT * FROM elsewhere") is None
    # A column that isn't there at the end.
    assert together([reading_of(a_context(), *parse(update))], ["id", "name"]) is None
    assert together([nothing, None], TABLES["target"]) is None
    assert together([], TABLES["target"]) is None


def test_what_takes_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    [statement] = parse("UPDATE target SET total = id")
    reading = reading_of(a_context(), statement)
    assert together([reading], TABLES["target"]) is not None
    monkeypatch.setattr("txlake.session.lineage.writes._READING_S", -1)
    assert together([reading], TABLES["target"]) is None


def test_of_many_statements_nothing_is_noted() -> None:
    before: Any = (("a", nothing),) * (WRITES_MAX + 1)
    transaction: Any = SimpleNamespace(writes=(*before, ("a", None)))
    Transaction.note_writes(transaction, before, lambda: nothing)
    assert transaction.writes[-1] == ("a", None)
    Transaction.note_writes(transaction, before[1:], lambda: nothing)
    assert transaction.writes == (*before[1:], ("a", nothing), ("a", nothing))
    Transaction.note_writes(
        transaction, (("b", None),), lambda: nothing
    )  # of what was undone since
    assert transaction.writes == (*before[1:], ("a", nothing), ("a", nothing))


def test_an_error_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise RecursionError

    [statement] = parse("UPDATE target SET total = id")
    assert together([broken], ["total"]) is None
    monkeypatch.setattr("txlake.session.lineage.writes.dataset_of_table", broken)
    assert reading_of(a_context(), statement) is None


def test_what_is_made_of_an_origin_tells_the_most() -> None:
    one = Origin("file", "t", "c")
    assert one.through("AGGREGATION").through("TRANSFORMATION").subtype == "AGGREGATION"
    assert one.indirect("JOIN").through("AGGREGATION") == one.indirect("JOIN")
