"""A table with collations, as Delta Spark writes it where its check of types is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_tables.features.one_session import Peers

CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
CONDITIONS = (
    "s = 'APPLE'",
    "s IN ('BANANA', 'x')",
    "s BETWEEN 'AZ' AND 'BB'",
    "s <> 'apple'",
    "startswith(s, 'B')",
    "u = 'ä'",
    "n.x = 'FOO'",
    "array_contains(a, 'Q')",
    "b = 'b'",
    "b = 'B' COLLATE UTF8_LCASE",
    "b COLLATE UTF8_LCASE < 'BB'",
    "p = 'P' COLLATE UTF8_LCASE",
    "s COLLATE UTF8_BINARY = 'banana'",
)


@pytest.mark.broad
@pytest.mark.no_interop("delta-rs knows no collations")
def test_conditions_mean_the_same(peers: Peers, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    ours, theirs = peers.txlake, peers.delta
    theirs.sql(f"SET {CHECK} = false")
    try:
        theirs.sql(
            f"CREATE TABLE {table} (id INT, s STRING COLLATE UTF8_LCASE, u STRING COLLATE "
            "UNICODE_CI, b STRING, n STRUCT<x: STRING COLLATE UTF8_LCASE>, a ARRAY<STRING COLLATE "
            "UTF8_LCASE>, p STRING) USING delta PARTITIONED BY (p)"
        )
        theirs.sql(
            f"INSERT INTO {table} VALUES (1, 'Apple', 'Ä', 'B', named_struct('x', 'Foo'), "
            "array('Q'), 'P'), (2, 'banana', 'z', 'b', named_struct('x', 'foo'), array('q'), 'p')"
        )
    finally:
        theirs.sql(f"SET {CHECK} = true")
    for condition in CONDITIONS:
        query = f"SELECT id FROM {table} WHERE {condition}"
        assert ours.sql(query) == theirs.sql(query), condition
    types = f"SELECT typeof(s), typeof(u), typeof(b), typeof(n), typeof(a) FROM {table}"
    assert ours.sql(types) == theirs.sql(types)
