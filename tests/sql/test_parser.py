"""Splitting, and what holds for every text: an error is an InvalidRequest with a place."""

from __future__ import annotations

import logging
import random
import re

import pytest

from tests.sql import (
    test_alteration,
    test_branches,
    test_changes,
    test_control,
    test_creation,
    test_inserts,
)
from tests.sql.parsing import refused
from tests.sql.test_queries import SPARK_SQL
from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.statements import Delete, Insert, Query, Select, TableName


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n ", 0),
        ("-- nothing; here", 0),
        (";;", 0),
        ("SELECT 1", 1),
        ("SELECT 1;", 1),
        ("SELECT 1; SELECT 2", 2),
        ("SELECT ';', \";\", `;` /* ; */ -- ;\n FROM t; DELETE FROM t", 2),
    ],
)
def test_statements_are_separated_by_semicolons(text: str, count: int) -> None:
    assert len(parse(text)) == count


def test_the_place_of_an_error_counts_all_lines() -> None:
    refused("SELECT 1;\n\n-- x\nSELECT 2; DELETE t", "4:18", "expected FROM, found 't'")


def test_words_are_names_where_a_name_stands() -> None:
    statements = parse("DELETE FROM delete; SELECT * FROM `select`.`from`")
    assert statements[0] == Delete(table=TableName(("delete",)))
    assert isinstance(statements[1], Select)
    assert statements[1].query.references[0].table == TableName(("select", "from"))


@pytest.mark.parametrize("text", ["GRANT SELECT ON t TO u", "x", "1", "'a'", ")"])
def test_an_unknown_statement_is_shown(text: str) -> None:
    refused(text, "1:1", "expected a statement")


_DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"DESCRIBE HISTORY t LIMIT {_DIGITS}", "1:26"),
        (f"SET LOCK_TIMEOUT {_DIGITS}", "1:18"),
        (f"KILL {_DIGITS}", "1:6"),
        (f"KILL '{_DIGITS}'", "1:6"),
        (f"SELECT * FROM t VERSION AS OF {_DIGITS}", "1:31"),
        (f"SELECT * FROM t VERSION AS OF '{_DIGITS}'", "1:31"),
        (f"SELECT * FROM table_changes('t', {_DIGITS})", "1:34"),
        (f"CREATE BRANCH b AT INSTANT {_DIGITS}", "1:28"),
    ],
)
def test_a_number_with_more_digits_than_python_converts_is_shown(text: str, place: str) -> None:
    refused(text, place, "")


@pytest.mark.parametrize("literal", [_DIGITS, f"-{_DIGITS}", f"{_DIGITS}L"])
def test_a_value_with_more_digits_than_python_converts_is_left_to_spark(literal: str) -> None:
    (statement,) = parse(f"INSERT INTO t VALUES ({literal})")
    assert isinstance(statement, Insert)
    assert isinstance(statement.source, Query)


def test_a_suffix_with_more_digits_than_python_converts_is_left_to_spark() -> None:
    (statement,) = parse(f"SELECT * FROM t@v{_DIGITS}")
    assert isinstance(statement, Select)
    assert statement.query.references[0].travel is None


def _corpus() -> list[str]:
    texts = SPARK_SQL.strip().splitlines()
    for module in (
        test_alteration,
        test_branches,
        test_changes,
        test_control,
        test_creation,
        test_inserts,
    ):
        for member in vars(module).values():
            for mark in getattr(member, "pytestmark", []):
                if mark.name == "parametrize" and str(mark.args[0]).startswith("('text'"):
                    texts += [case[0] for case in mark.args[1]]
    return texts


def test_damaged_statements_give_no_other_error(caplog: pytest.LogCaptureFixture) -> None:
    corpus = _corpus()
    assert len(corpus) > 200
    chance = random.Random(20260101)
    refusals: list[str] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(1500):
            pieces = re.findall(r"\s+|\w+|'[^']*'|`[^`]*`|.", chance.choice(corpus))
            for _ in range(chance.randint(1, 3)):
                place = chance.randrange(len(pieces))
                match chance.randrange(4):
                    case 0:
                        pieces[place] = ""
                    case 1:
                        pieces.insert(place, chance.choice(pieces))
                    case 2:
                        pieces[place] = chance.choice(chance.choice(corpus).split() or [""])
                    case _:
                        del pieces[place + 1 :]
            try:
                parse("".join(pieces))
            except InvalidRequest as error:
                refusals.append(str(error))
    assert len(refusals) > 500
    assert all(re.search(r"at line \d+, column \d+: ", message) for message in refusals)
    assert not caplog.records
