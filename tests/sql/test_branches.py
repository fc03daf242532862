"""Branches and tags: their statements, their names, and that no word of theirs is reserved."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.parsing import name, one, refused
from txlake.errors import InvalidRequest
from txlake.sql import parse, sql_literal
from txlake.sql.statements import (
    Atomic,
    CreateBranch,
    CreateDatabase,
    CreateTable,
    CreateTag,
    Delete,
    DescribeBranch,
    DescribeTable,
    DropBranch,
    DropTable,
    DropTag,
    ExplainPublish,
    LakeInstant,
    LockTable,
    PublishBranch,
    RebaseBranch,
    RollbackTo,
    Select,
    ShowBranches,
    ShowTables,
    ShowTags,
    Statement,
    TablePath,
    TimeTravel,
    UseBranch,
    UseDatabase,
    quoted,
)
from txlake.sql.statements.branches import MAIN, branch_name

DAY_MS = 24 * 3_600_000
AT_12 = LakeInstant(sequence=12)
AT_NOON = LakeInstant(timestamp="2026-01-31 12:00:00")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("CREATE BRANCH b", CreateBranch(name="b")),
        ("create branch if not exists b", CreateBranch(name="b", if_not_exists=True)),
        ("CREATE BRANCH `nightly/2026-01.31`", CreateBranch(name="nightly/2026-01.31")),
        ("CREATE BRANCH IDENTIFIER('b' || '1')", CreateBranch(name="b1")),
        ("CREATE BRANCH b FOR TABLE t", CreateBranch(name="b", table=name("t"))),
        (
            "CREATE BRANCH IF NOT EXISTS b FOR TABLE delta.`/p`",
            CreateBranch(name="b", if_not_exists=True, table=TablePath("/p")),
        ),
        ("SHOW BRANCHES FOR TABLE delta.`/p` LIKE 'b*'", ShowBranches("b*", TablePath("/p"))),
        ("SHOW BRANCHES FOR TABLE t", ShowBranches(None, name("t"))),
        ("DESCRIBE BRANCH b FOR TABLE t", DescribeBranch("b", name("t"))),
        ("EXPLAIN PUBLISH BRANCH b FOR TABLE t", ExplainPublish("b", name("t"))),
        ("PUBLISH BRANCH b FOR TABLE t", PublishBranch("b", name("t"))),
        ("PUBLISH BRANCH b FOR TABLE t AS TRANSACTION", PublishBranch("b", name("t"))),
        ("REBASE BRANCH b FOR TABLE t", RebaseBranch("b", name("t"))),
        ("DROP BRANCH b FOR TABLE t", DropBranch("b", False, name("t"))),
        ("DROP BRANCH IF EXISTS b FOR TABLE t", DropBranch("b", True, name("t"))),
        ("CREATE BRANCH b FROM BRANCH a", CreateBranch(name="b", origin="a")),
        ("CREATE BRANCH b FROM BRANCH Main", CreateBranch(name="b", origin="main")),
        ("CREATE BRANCH b AT INSTANT 12", CreateBranch(name="b", at=AT_12)),
        (
            "CREATE BRANCH b AT TIMESTAMP '2026-01-31 12:00:00'",
            CreateBranch(name="b", at=AT_NOON),
        ),
        ("CREATE BRANCH b TIMESTAMP '2026-01-31 12:00:00'", CreateBranch(name="b", at=AT_NOON)),
        ("CREATE BRANCH b RETAIN 7 DAYS", CreateBranch(name="b", retain_ms=7 * DAY_MS)),
        (
            "CREATE BRANCH IF NOT EXISTS b FROM BRANCH a AT INSTANT 12 RETAIN 1 day",
            CreateBranch(name="b", origin="a", at=AT_12, retain_ms=DAY_MS, if_not_exists=True),
        ),
        (
            "CREATE BRANCH b RETAIN 36 HOURS TIMESTAMP '2026-01-31 12:00:00' FROM BRANCH a",
            CreateBranch(name="b", origin="a", at=AT_NOON, retain_ms=36 * 3_600_000),
        ),
        ("CREATE BRANCH if", CreateBranch(name="if")),
        ("CREATE BRANCH branch FROM BRANCH from", CreateBranch(name="branch", origin="from")),
        ("USE BRANCH b", UseBranch("b")),
        ("USE BRANCH `a/b`", UseBranch("a/b")),
        ("USE BRANCH branch", UseBranch("branch")),
        ("USE BRANCH main", UseBranch("main")),
        ("USE BRANCH MAIN", UseBranch("main")),
        ("SHOW BRANCHES", ShowBranches()),
        ("SHOW BRANCHES LIKE 'night*'", ShowBranches("night*")),
        ("SHOW BRANCHES 'night*'", ShowBranches("night*")),
        ("DESCRIBE BRANCH b", DescribeBranch("b")),
        ("DESC BRANCH `a/b`", DescribeBranch("a/b")),
        ("DESCRIBE BRANCH branch", DescribeBranch("branch")),
        ("EXPLAIN PUBLISH BRANCH b", ExplainPublish("b")),
        ("PUBLISH BRANCH b", PublishBranch("b")),
        ("PUBLISH BRANCH b AS TRANSACTION", PublishBranch("b")),
        ("PUBLISH BRANCH b PER TABLE", PublishBranch("b", per_table=True)),
        ("REBASE BRANCH b", RebaseBranch("b")),
        ("DROP BRANCH b", DropBranch("b")),
        ("DROP BRANCH IF EXISTS b", DropBranch("b", if_exists=True)),
        ("CREATE TAG t", CreateTag(name="t")),
        ("CREATE TAG IF NOT EXISTS t", CreateTag(name="t", if_not_exists=True)),
        ("CREATE TAG `2026-01-31` AT INSTANT 12", CreateTag(name="2026-01-31", at=AT_12)),
        (
            "CREATE TAG t AT TIMESTAMP '2026-01-31 12:00:00' RETAIN 2 WEEKS",
            CreateTag(name="t", at=AT_NOON, retain_ms=14 * DAY_MS),
        ),
        (
            "CREATE TAG t RETAIN 1 DAY AT INSTANT 12",
            CreateTag(name="t", at=AT_12, retain_ms=DAY_MS),
        ),
        ("DROP TAG t", DropTag("t")),
        ("DROP TAG IF EXISTS t", DropTag("t", if_exists=True)),
        ("SHOW TAGS", ShowTags()),
        ("SHOW TAGS LIKE 'v*'", ShowTags("v*")),
    ],
)
def test_branches_and_tags(text: str, statement: Statement) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("duration", "retain_ms"),
    [
        ("1 SECOND", 1_000),
        ("90 SECONDS", 90_000),
        ("1 MINUTE", 60_000),
        ("15 MINUTES", 900_000),
        ("1 HOUR", 3_600_000),
        ("1 WEEK", 7 * DAY_MS),
        ("007 DAYS", 7 * DAY_MS),
        ("36500 DAYS", 36_500 * DAY_MS),
    ],
)
def test_the_units_of_retain(duration: str, retain_ms: int) -> None:
    assert one(f"CREATE BRANCH b RETAIN {duration}") == CreateBranch(name="b", retain_ms=retain_ms)


def test_clauses_take_parameters() -> None:
    text = "CREATE BRANCH IDENTIFIER(:name) AT INSTANT :sequence RETAIN :days DAYS"
    args = {"name": "`nightly-1`", "sequence": 12, "days": 7}
    assert one(text, args) == CreateBranch(name="nightly-1", at=AT_12, retain_ms=7 * DAY_MS)
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    in_zone = LakeInstant(timestamp="2026-01-31 12:00:00+00:00")
    assert one("CREATE TAG t AT :noon", {"noon": noon}) == CreateTag(name="t", at=in_zone)
    text = "CREATE TAG t AT TIMESTAMP :noon"
    assert one(text, {"noon": "2026-01-31 12:00:00"}) == CreateTag(name="t", at=AT_NOON)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (
            "CREATE BRANCH",
            "1:14",
            "expected a branch's name, plain or in backquotes, found the end",
        ),
        ("CREATE BRANCH 'b'", "1:15", "in backquotes, found \"'b'\""),
        ("CREATE BRANCH IF EXISTS b", "1:18", "expected FROM BRANCH a, AT INSTANT n"),
        ("CREATE BRANCH b c", "1:17", "expected FROM BRANCH a, AT INSTANT n"),
        ("CREATE BRANCH b FROM a", "1:22", "expected BRANCH, found 'a'"),
        ("CREATE BRANCH b FROM BRANCH", "1:28", "a branch's name, or main"),
        ("CREATE BRANCH b FROM BRANCH a FROM BRANCH c", "1:31", "found 'FROM'"),
        ("CREATE BRANCH b AT", "1:19", "expected INSTANT n or TIMESTAMP '...', found the end"),
        ("CREATE BRANCH b AT VERSION 3", "1:20", "expected INSTANT n or TIMESTAMP '...'"),
        ("CREATE BRANCH b AT INSTANT -1", "1:28", "as txlake.commits shows it, found '-'"),
        ("CREATE BRANCH b AT INSTANT 1.5", "1:28", "the number of an instant"),
        ("CREATE BRANCH b AT INSTANT '12'", "1:28", "the number of an instant"),
        ("CREATE BRANCH b AT INSTANT 9223372036854775808", "1:28", "at most 9223372036854775807"),
        ("CREATE BRANCH b AT TIMESTAMP now()", "1:30", "expected a timestamp in quotes"),
        ("CREATE BRANCH b AT INSTANT 1 AT INSTANT 2", "1:30", "found 'AT'"),
        ("CREATE BRANCH b RETAIN", "1:23", "a whole number, as in RETAIN 7 DAYS, found the end"),
        ("CREATE BRANCH b RETAIN 7", "1:25", "expected WEEKS, DAYS, HOURS, MINUTES or SECONDS"),
        ("CREATE BRANCH b RETAIN 7 MONTHS", "1:26", "expected WEEKS, DAYS"),
        ("CREATE BRANCH b RETAIN 1.5 DAYS", "1:24", "a whole number"),
        ("CREATE BRANCH b RETAIN -1 DAYS", "1:24", "a whole number"),
        ("CREATE BRANCH b RETAIN 0 DAYS", "1:24", "1 second to 36,500 days"),
        ("CREATE BRANCH b RETAIN 36501 DAYS", "1:24", "1 second to 36,500 days"),
        ("CREATE BRANCH b RETAIN 1 DAY RETAIN 2 DAYS", "1:30", "found 'RETAIN'"),
        ("CREATE OR REPLACE BRANCH b", "1:19", "isn't replaced: DROP it first"),
        ("CREATE OR REPLACE TAG t", "1:19", "isn't replaced: DROP it first"),
        ("CREATE BRANCH main", "1:15", "expected a branch's name other than main"),
        ("CREATE BRANCH `MAIN`", "1:15", "expected a branch's name other than main"),
        ("CREATE TAG Main", "1:12", "expected a tag's name other than main"),
        ("CREATE TAG t FROM BRANCH b", "1:14", "expected AT INSTANT n"),
        ("CREATE BRANCHES b", "1:8", "BRANCH, TAG"),
        ("USE BRANCH 'b'", "1:12", "a branch's name, or main, plain or in backquotes"),
        ("USE BRANCH a b", "1:14", "expected the end"),
        ("USE BRANCH a.b", "1:12", "write this one in backquotes, `a.b`"),
        ("USE BRANCH nightly-2026/01", "1:12", "write this one in backquotes, `nightly-2026/01`"),
        ("USE BRANCH 2026-01-31", "1:12", "write this one in backquotes, `2026-01-31`"),
        ("USE BRANCH 12", "1:12", "found the number 12"),
        ("USE BRANCH `12`", "1:12", "it is a number, as the version of a table is"),
        ("USE BRANCH `a b`", "1:12", "character 2 is ' '"),
        ("USE BRANCH `-a`", "1:12", "it begins with '-'"),
        (f"USE BRANCH {'b' * 256}", "1:12", "it has 256 characters"),
        ("SHOW BRANCHES IN b", "1:15", "expected the end"),
        ("SHOW BRANCHES LIKE b", "1:20", "a pattern in quotes"),
        ("SHOW BRANCH b", "1:6", "BRANCHES, TAGS"),
        ("SHOW TAGS b", "1:11", "expected the end"),
        ("DESCRIBE BRANCH b c", "1:19", "DESCRIBE TABLE branch c is for a table's column"),
        ("DESCRIBE BRANCH main", "1:17", "expected a branch's name other than main"),
        ("SELECT * FROM (DESCRIBE BRANCH b)", "1:25", "HISTORY, DETAIL or TABLE"),
        ("EXPLAIN PUBLISH b", "1:17", "expected BRANCH"),
        ("EXPLAIN PUBLISH BRANCH b c", "1:26", "expected the end"),
        ("PUBLISH", "1:8", "expected BRANCH"),
        ("PUBLISH b", "1:9", "expected BRANCH"),
        ("PUBLISH BRANCH main", "1:16", "expected a branch's name other than main"),
        (
            "PUBLISH BRANCH b PER",
            "1:18",
            "expected FOR TABLE, AS TRANSACTION, PER TABLE or the end",
        ),
        (
            "PUBLISH BRANCH b AS TABLE",
            "1:18",
            "expected FOR TABLE, AS TRANSACTION, PER TABLE or the end",
        ),
        (
            "PUBLISH BRANCH b FOR t",
            "1:18",
            "expected FOR TABLE, AS TRANSACTION, PER TABLE or the end",
        ),
        ("CREATE BRANCH b FOR TABLE", "1:26", "expected a table's name"),
        ("CREATE BRANCH b FOR TABLE t RETAIN 7 DAYS", "1:29", "expected the end"),
        ("SHOW BRANCHES LIKE 'b' FOR TABLE t", "1:24", "expected the end"),
        ("REBASE b", "1:8", "expected BRANCH"),
        ("REBASE BRANCH b ONTO c", "1:17", "expected the end"),
        ("REBASE BRANCH main", "1:15", "expected a branch's name other than main"),
        ("DROP BRANCH b CASCADE", "1:15", "expected the end"),
        ("DROP BRANCH IF EXISTS main", "1:23", "expected a branch's name other than main"),
        ("DROP BRANCH IF EXISTS", "1:22", "expected a branch's name"),
        ("DROP TAG main", "1:10", "expected a tag's name other than main"),
        ("DROP TAGS t", "1:6", "BRANCH, TAG"),
    ],
)
def test_malformed_statements_on_branches_are_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("USE branch", UseDatabase("branch")),
        ("USE `branch`", UseDatabase("branch")),
        ("USE DATABASE branch", UseDatabase("branch")),
        ("USE tag", UseDatabase("tag")),
        ("USE publish", UseDatabase("publish")),
        ("DESCRIBE branch", DescribeTable(table=name("branch"))),
        ("DESCRIBE branch.t", DescribeTable(table=name("branch.t"))),
        ("DESCRIBE branch.t c", DescribeTable(table=name("branch.t"), column=("c",))),
        ("DESCRIBE `branch` c", DescribeTable(table=name("branch"), column=("c",))),
        ("DESCRIBE TABLE branch c", DescribeTable(table=name("branch"), column=("c",))),
        ("DESCRIBE EXTENDED branch", DescribeTable(table=name("branch"), extended=True)),
        ("DESCRIBE tag t", DescribeTable(table=name("tag"), column=("t",))),
        ("DESCRIBE branches", DescribeTable(table=name("branches"))),
        ("SHOW TABLES IN branch", ShowTables("branch")),
        ("CREATE DATABASE branch", CreateDatabase(name="branch")),
        ("DROP TABLE branch", DropTable(table=name("branch"))),
        ("DROP TABLE IF EXISTS tag", DropTable(table=name("tag"), if_exists=True)),
        ("DELETE FROM publish", Delete(table=name("publish"))),
        ("LOCK TABLE branch, tag", LockTable((name("branch"), name("tag")))),
        ("ROLLBACK TO branch", RollbackTo("branch")),
    ],
)
def test_words_of_branches_are_names_elsewhere(text: str, statement: Statement) -> None:
    assert one(text) == statement


_WORDS = [
    "branch",
    "branches",
    "tag",
    "tags",
    "publish",
    "rebase",
    "instant",
    "retain",
    "per",
    "main",
    "at",
    "transaction",
    "days",
]


@pytest.mark.parametrize("word", _WORDS)
def test_a_query_names_tables_columns_and_aliases_with_words_of_branches(word: str) -> None:
    text = f"SELECT {word}.{word}, max({word}) {word} FROM {word}, {word}.{word} VERSION AS OF 1 x"
    statement = one(text)
    assert isinstance(statement, Select)
    assert [str(reference.table) for reference in statement.query.references] == [
        word,
        f"{word}.{word}",
    ]
    created = one(f"CREATE TABLE {word} ({word} INT)")
    assert isinstance(created, CreateTable)
    assert (created.table, created.columns[0].name) == (name(word), word)
    block = one(f"BEGIN ATOMIC {word}: WHILE FALSE DO DELETE FROM {word}; END WHILE; END")
    assert isinstance(block, Atomic)


def test_a_table_description_in_a_query_may_be_of_one_called_branch() -> None:
    statement = one("SELECT * FROM (DESCRIBE branch)")
    assert isinstance(statement, Select)
    assert statement.query.references[0].description == DescribeTable(table=name("branch"))


@pytest.mark.parametrize(
    ("clause", "travel"),
    [
        ("VERSION AS OF 'nightly'", TimeTravel(branch_or_tag="nightly")),
        ("FOR VERSION AS OF 'a/b-c.d_1'", TimeTravel(branch_or_tag="a/b-c.d_1")),
        ("FOR SYSTEM_VERSION AS OF '2026-01-31'", TimeTravel(branch_or_tag="2026-01-31")),
        ("VERSION AS OF 'MAIN'", TimeTravel(branch_or_tag="main")),
        ("VERSION AS OF '1.5'", TimeTravel(branch_or_tag="1.5")),
        ("VERSION AS OF '3'", TimeTravel(version=3)),
        ("VERSION AS OF 3", TimeTravel(version=3)),
        ("TIMESTAMP AS OF 'nightly'", TimeTravel(timestamp="nightly")),
    ],
)
def test_a_text_that_is_no_number_is_a_branch_or_a_tag(clause: str, travel: TimeTravel) -> None:
    statement = one(f"SELECT * FROM t {clause} x JOIN u ON TRUE")
    assert isinstance(statement, Select)
    assert [reference.travel for reference in statement.query.references] == [travel, None]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("''", "it is empty"),
        ("'-1'", "it begins with '-'"),
        ("'a b'", "character 2 is ' '"),
        ("'1 '", "character 2 is ' '"),
        ("nightly", "the name of a branch or a tag in quotes, found 'nightly'"),
        ("`nightly`", "the name of a branch or a tag in quotes, found '`nightly`'"),
        ("-1", "found '-'"),
    ],
)
def test_a_version_is_a_number_or_a_name(value: str, problem: str) -> None:
    refused(f"SELECT * FROM t VERSION AS OF {value}", "1:31", "a version is a whole number, 0 or")
    refused(f"SELECT * FROM t VERSION AS OF {value}", "1:31", problem)


@settings(derandomize=True)
@given(st.text(max_size=12) | st.from_regex(r"[\w./-]{1,12}", fullmatch=True))
def test_every_name_of_a_branch_is_written_in_backquotes_and_as_a_version(text: str) -> None:
    try:
        branch = branch_name(text)
    except InvalidRequest:
        return
    assert branch == (MAIN if text.lower() == MAIN else text)
    assert one(f"USE BRANCH {quoted(text, always=True)}") == UseBranch(branch)
    (statement,) = parse("SELECT * FROM t VERSION AS OF :v", {"v": text})
    assert isinstance(statement, Select)
    travel = statement.query.references[0].travel
    assert travel == TimeTravel(branch_or_tag=branch)
    assert str(travel) == f"VERSION AS OF {sql_literal(branch)}"


@pytest.mark.parametrize(
    "text", ["", " b", "b ", "a b", ".", "..", "/a", "-a", "12", "٣", "a'", "a`", "İ" * 128]
)
def test_what_cant_name_a_branch(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"can't name a branch or a tag: .*; expected at most"):
        branch_name(text)


@pytest.mark.parametrize(
    "text", ["b", "_", "1a", "2026-01-31", "größe", "名前", "b" * 255, "a..b/"]
)
def test_what_names_a_branch(text: str) -> None:
    assert branch_name(text) == text


@pytest.mark.parametrize("at", [AT_12, AT_NOON])
def test_an_instant_is_written_as_sql(at: LakeInstant) -> None:
    assert one(f"CREATE TAG t {at}") == CreateTag(name="t", at=at)
