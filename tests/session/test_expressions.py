from __future__ import annotations

import pytest

from txlake.ddl.clustering import clustering_domain, clustering_paths
from txlake.ddl.stored_expressions import check_constraint, referenced_columns, uses_column
from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import DomainMetadata
from txlake.protocol.clustering import clustered_by
from txlake.protocol.type_text import parse_columns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 1", {("a",)}),
        ("`odd name` + S.x.Y.z.w = 2", {("odd name",), ("s", "x", "y", "z", "w")}),
        ("any_function(a, 'b') AND c IN (1, d)", {("a",), ("c",), ("d",)}),
        ("exists(list, x -> x > bound)", {("list",), ("bound",)}),
        ("CAST(a AS DATE) = DATE '2020-01-01'", {("a",)}),
        ("a >", None),
        ("a; b", None),
    ],
)
def test_columns_of_an_expression(text: str, expected: set[tuple[str, ...]] | None) -> None:
    found = referenced_columns(text)
    assert found == (None if expected is None else frozenset(expected))


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("s.x > 1", ("S", "X"), True),
        ("s.x > 1", ("s",), True),
        ("s.x > 1", ("s", "y"), False),
        ("s > 1", ("s", "y"), True),
        ("sx > 1", ("s",), False),
        ("what is s >", ("s",), True),
        ("what is this >", ("q",), False),
    ],
)
def test_use_of_a_column(text: str, path: tuple[str, ...], expected: bool) -> None:
    assert uses_column(text, path) == expected


@pytest.mark.parametrize(
    "text",
    [
        "current_timestamp() > t",
        "now() > t",
        "current_date > t",
        "uuid() = t",
        "t = current_user()",
    ],
)
def test_what_changes_by_itself_is_no_constraint(text: str) -> None:
    with pytest.raises(InvalidRequest, match="another value each time"):
        check_constraint("c", text, parse_columns("t timestamp"))


def test_arguments_of_pure_functions_are_sparks_to_judge() -> None:
    schema = parse_columns("t int")
    check_constraint("c", "regexp_like(t, 'a', 'b', 'c', 'd')", schema)
    with pytest.raises(InvalidRequest, match=r"it calls my_own\(\): it isn't known to compute"):
        check_constraint("c", "my_own(t) AND regexp_like(t, 'a', 'b', 'c', 'd')", schema)


def test_clustering_columns_in_both_spellings_of_the_domain() -> None:
    schema = parse_columns("a int, s struct<x: int>, `d.o` int")
    paths = clustering_paths(schema, ("S.X", "d.o"))
    assert paths == (("s", "x"), ("d.o",))
    domain = clustering_domain(schema, paths)
    domains = {domain.domain: domain}
    assert clustered_by(schema, domains, table="t") == paths
    flat = DomainMetadata(
        domain="delta.clustering", configuration='{"clusteringColumns":["a","gone"]}', removed=False
    )
    assert clustered_by(schema, {flat.domain: flat}, table="t") == (("a",), ("gone",))
    broken = DomainMetadata(domain="delta.clustering", configuration="{}", removed=False)
    with pytest.raises(CorruptTable, match=r"t: domain delta\.clustering: expected"):
        clustered_by(schema, {broken.domain: broken}, table="t")


def test_what_cannot_be_clustered_by() -> None:
    schema = parse_columns("a array<int>, b boolean, s struct<x: int>")
    for column in ("a", "b", "s"):
        with pytest.raises(InvalidRequest, match="no order to cluster by"):
            clustering_paths(schema, (column,))
