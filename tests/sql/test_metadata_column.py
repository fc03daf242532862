"""Which `*` must not bring the hidden column `_metadata`."""

from __future__ import annotations

import pytest

from tests.sql.parsing import one
from txlake.errors import InvalidRequest
from txlake.sql.metadata_column import exclude_metadata, names_metadata
from txlake.sql.statements import Select, SqlText, TableName


def _query(text: str) -> SqlText:
    statement = one(text)
    assert isinstance(statement, Select)
    return statement.query


def _hiding(text: str) -> str:
    """The text where the tables `t` and `u` show the column."""
    query = _query(text)
    shown = (TableName(("t",)), TableName(("u",)))
    found = exclude_metadata(query, [one.start for one in query.references if one.table in shown])
    assert [found.text[one.start : one.end] for one in found.references] == [
        text[one.start : one.end] for one in query.references
    ]
    return found.text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT _metadata.file_name FROM t", True),
        ("SELECT `_METADATA` FROM t", True),
        ("SELECT '_metadata' FROM t", False),
        ("SELECT a_metadata FROM t", False),
        ("SELECT 1 -- _metadata", False),
    ],
)
def test_a_query_names_the_column(text: str, names: bool) -> None:
    assert names_metadata(text) is names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT *, _metadata FROM t", "SELECT * EXCEPT (_metadata), _metadata FROM t"),
        ("SELECT a.*, b FROM t a", "SELECT a.* EXCEPT (_metadata), b FROM t a"),
        ("SELECT _metadata.*, t._METADATA.* FROM t", "SELECT _metadata.*, t._METADATA.* FROM t"),
        ("SELECT count(*), 2 * 3, a * b FROM t", "SELECT count(*), 2 * 3, a * b FROM t"),
        ("SELECT * FROM v", "SELECT * FROM v"),
        (
            "SELECT * FROM v WHERE a IN (SELECT b FROM t)",
            "SELECT * FROM v WHERE a IN (SELECT b FROM t)",
        ),
        (
            "SELECT *, x FROM (SELECT 1, * FROM t WHERE a) v JOIN w",
            "SELECT *, x FROM (SELECT 1, * EXCEPT (_metadata) FROM t WHERE a) v JOIN w",
        ),
        (
            "WITH c AS (SELECT * FROM t) SELECT * FROM c UNION SELECT DISTINCT * FROM u",
            (
                "WITH c AS (SELECT * EXCEPT (_metadata) FROM t) SELECT * FROM c UNION "
                "SELECT DISTINCT * EXCEPT (_metadata) FROM u"
            ),
        ),
        ("SELECT a FROM t JOIN u", "SELECT a FROM t JOIN u"),
    ],
)
def test_a_star_does_not_bring_it(text: str, found: str) -> None:
    assert _hiding(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t JOIN v",
        "SELECT t.* FROM v, t",
        "SELECT struct(*) FROM t",
        "SELECT * EXCEPT (a) FROM t",
        "TABLE t",
    ],
)
def test_a_star_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="name the columns"):
        _hiding(text)
