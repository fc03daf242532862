"""A text as a script: where its statements begin and end, and whether more is to come."""

from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.sql import ScriptStatement, is_complete, parse, parse_script
from txlake.sql.statements import Atomic, Begin, Select, Truncate

SCRIPT = """\
-- what comes first; isn't a statement
BEGIN;  ;
SELECT 'a;b' -- one; two
  AS c, `d;e` /* f; g */ FROM t ;
BEGIN ATOMIC
  TRUNCATE TABLE t; BEGIN ATOMIC TRUNCATE TABLE u; END;
END;
SELECT 1 -- the end
"""


def test_the_statements_have_their_texts_and_lines() -> None:
    pieces = parse_script(SCRIPT)
    assert [(piece.line, type(piece.statement)) for piece in pieces] == [
        (2, Begin),
        (3, Select),
        (5, Atomic),
        (8, Select),
    ]
    begin, select, block, last = (piece.text for piece in pieces)
    assert begin == "BEGIN"
    assert select == "SELECT 'a;b' -- one; two\n  AS c, `d;e` /* f; g */ FROM t"
    assert block == ("BEGIN ATOMIC\n  TRUNCATE TABLE t; BEGIN ATOMIC TRUNCATE TABLE u; END;\nEND")
    assert last == "SELECT 1"


def test_each_text_means_what_it_meant_in_the_script() -> None:
    for piece in parse_script(SCRIPT):
        assert parse(piece.text) == (piece.statement,)


@pytest.mark.parametrize("text", ["", " ;; ", "-- nothing", "/* nothing; */"])
def test_a_text_without_a_statement(text: str) -> None:
    assert parse_script(text) == ()


def test_a_block_alone() -> None:
    (piece,) = parse_script("BEGIN ATOMIC TRUNCATE TABLE t; END")
    assert isinstance(piece, ScriptStatement)
    assert isinstance(piece.statement, Atomic)
    assert len(piece.statement.statements) == 1
    assert isinstance(piece.statement.statements[0], Truncate)


def test_what_is_not_understood_is_shown_in_the_script() -> None:
    with pytest.raises(InvalidRequest, match="line 2, column 8"):
        parse_script("BEGIN;\nDELETE t")


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- that's all", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 1 -- ;", False),
        ("SELECT 1 /* ;", False),
        ("SELECT 1; SELECT", False),
        ("SELECT 1; SELECT 2;", True),
        ("BEGIN;", True),
        ("BEGIN; TRUNCATE TABLE t; END;", True),
        ("BEGIN ATOMIC TRUNCATE TABLE t;", False),
        ("begin atomic truncate table t; end;", True),
        ("BEGIN ATOMIC TRUNCATE TABLE t; END", False),
        ("BEGIN ATOMIC BEGIN ATOMIC TRUNCATE TABLE t; END;", False),
        ("", False),
        (";", True),
    ],
)
def test_whether_more_is_to_come(text: str, closed: bool) -> None:
    assert is_complete(text) is closed
