"""The grammar of branches and tags: CREATE, USE, DESCRIBE, PUBLISH, REBASE and DROP.

None of its words is reserved: where BRANCH or TAG could be a table's or a database's name, it is a
keyword only if another name follows.
"""

from __future__ import annotations

import re

from txlake.errors import InvalidRequest
from txlake.protocol.properties import interval_ms
from txlake.sql.cursor import Cursor
from txlake.sql.statements import (
    CreateBranch,
    CreateTag,
    DescribeBranch,
    DropBranch,
    DropTag,
    ExplainPublish,
    LakeInstant,
    PublishBranch,
    RebaseBranch,
    Table,
    UseBranch,
)
from txlake.sql.statements.branches import MAIN, branch_name
from txlake.sql.tokens import Kind, words

_UNQUOTED_NAME = re.compile(r"[\w./-]+")
_UNITS = words("WEEK WEEKS DAY DAYS HOUR HOURS MINUTE MINUTES SECOND SECONDS")
_RETAINED_MS_MAX = 36_500 * 24 * 3_600_000
_INSTANT_MAX = 2**63 - 1
_AT = ("AT", "TIMESTAMP")
_CLAUSES = "AT INSTANT n, AT TIMESTAMP '...', RETAIN n DAYS or the end of the statement"
_BRANCH = "a branch's name"
_TAG = "a tag's name"


def at_branch(cursor: Cursor) -> bool:
    """Return whether BRANCH and a name of it are next, after USE or DESCRIBE.

    BRANCH alone, or before a dot, is the name of a database or a table.
    """
    following = cursor.ahead()
    return cursor.at("BRANCH") and following.kind is not Kind.END and following.text != "."


def create_branch(cursor: Cursor) -> CreateBranch:
    """Parse BRANCH [IF NOT EXISTS] b [FROM BRANCH a] [AT ...] [RETAIN n DAYS], after CREATE, or
    BRANCH [IF NOT EXISTS] b FOR TABLE t.

    The clauses may have any order. FROM BRANCH and AT together name the branch as it was then.
    """
    cursor.expect("BRANCH")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _own_name(cursor, _BRANCH)
    table = for_table(cursor)
    if table is not None:
        if not cursor.at_end:
            cursor.refuse(
                "a branch of one table begins at its newest version, and is kept until it is "
                "published or dropped: expected the end of the statement"
            )
        return CreateBranch(name=name, if_not_exists=if_not_exists, table=table)
    origin: str | None = None
    at: LakeInstant | None = None
    retain_ms: int | None = None
    while not cursor.at_end:
        if origin is None and cursor.accept("FROM"):
            cursor.expect("BRANCH")
            origin = _name(cursor, f"{_BRANCH}, or main")
        elif at is None and cursor.at_any(*_AT):
            at = _instant(cursor)
        elif retain_ms is None and cursor.accept("RETAIN"):
            retain_ms = _duration_ms(cursor)
        else:
            cursor.fail(f"FROM BRANCH a, {_CLAUSES}")
    return CreateBranch(
        name=name, origin=origin, at=at, retain_ms=retain_ms, if_not_exists=if_not_exists
    )


def create_tag(cursor: Cursor) -> CreateTag:
    """Parse TAG [IF NOT EXISTS] t [AT ...] [RETAIN n DAYS], after CREATE.

    The clauses may have any order.
    """
    cursor.expect("TAG")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _own_name(cursor, _TAG)
    at: LakeInstant | None = None
    retain_ms: int | None = None
    while not cursor.at_end:
        if at is None and cursor.at_any(*_AT):
            at = _instant(cursor)
        elif retain_ms is None and cursor.accept("RETAIN"):
            retain_ms = _duration_ms(cursor)
        else:
            cursor.fail(_CLAUSES)
    return CreateTag(name=name, at=at, retain_ms=retain_ms, if_not_exists=if_not_exists)


def use_branch(cursor: Cursor) -> UseBranch:
    """Parse BRANCH { b | main }, after USE."""
    cursor.expect("BRANCH")
    name = _name(cursor, f"{_BRANCH}, or main")
    cursor.expect_end()
    return UseBranch(name)


def describe_branch(cursor: Cursor) -> DescribeBranch:
    """Parse BRANCH b [FOR TABLE t], after DESCRIBE."""
    cursor.expect("BRANCH")
    name = _own_name(cursor, _BRANCH)
    table = for_table(cursor)
    if not cursor.at_end:
        cursor.fail(
            "FOR TABLE or the end of the statement (DESCRIBE TABLE branch c is for a table's "
            "column)"
        )
    return DescribeBranch(name, table)


def explain_publish(cursor: Cursor) -> ExplainPublish:
    """Parse EXPLAIN PUBLISH BRANCH b [FOR TABLE t]."""
    cursor.expect("EXPLAIN", "PUBLISH", "BRANCH")
    name = _own_name(cursor, _BRANCH)
    table = for_table(cursor)
    cursor.expect_end()
    return ExplainPublish(name, table)


def publish(cursor: Cursor) -> PublishBranch:
    """Parse PUBLISH BRANCH b [FOR TABLE t] [AS TRANSACTION], or b PER TABLE."""
    cursor.expect("PUBLISH", "BRANCH")
    name = _own_name(cursor, _BRANCH)
    if cursor.accept("PER", "TABLE"):
        cursor.expect_end()
        return PublishBranch(name, per_table=True)
    table = for_table(cursor)
    if not cursor.accept("AS", "TRANSACTION") and not cursor.at_end:
        cursor.fail("FOR TABLE, AS TRANSACTION, PER TABLE or the end of the statement")
    cursor.expect_end()
    return PublishBranch(name, table)


def rebase(cursor: Cursor) -> RebaseBranch:
    """Parse REBASE BRANCH b [FOR TABLE t]."""
    cursor.expect("REBASE", "BRANCH")
    name = _own_name(cursor, _BRANCH)
    table = for_table(cursor)
    cursor.expect_end()
    return RebaseBranch(name, table)


def drop_branch(cursor: Cursor) -> DropBranch:
    """Parse BRANCH [IF EXISTS] b [FOR TABLE t], after DROP."""
    cursor.expect("BRANCH")
    if_exists = cursor.accept("IF", "EXISTS")
    name = _own_name(cursor, _BRANCH)
    table = for_table(cursor)
    cursor.expect_end()
    return DropBranch(name, if_exists, table)


def drop_tag(cursor: Cursor) -> DropTag:
    """Parse TAG [IF EXISTS] t, after DROP."""
    cursor.expect("TAG")
    if_exists = cursor.accept("IF", "EXISTS")
    name = _own_name(cursor, _TAG)
    cursor.expect_end()
    return DropTag(name, if_exists)


def for_table(cursor: Cursor) -> Table | None:
    """Parse FOR TABLE t, the path table whose branch is meant; None without it."""
    return cursor.table() if cursor.accept("FOR", "TABLE") else None


def _own_name(cursor: Cursor, what: str) -> str:
    """Parse a name as `_name` does. Raises InvalidRequest for main too."""
    start = cursor.token
    name = _name(cursor, what)
    if name == MAIN:
        cursor.refuse(
            f"main, in any letter case, is the lake without branches: expected {what} other than "
            "main",
            start,
        )
    return name


def _name(cursor: Cursor, what: str) -> str:
    """Parse a branch's or a tag's name: an identifier, or any name in backquotes.

    Raises InvalidRequest for what is no name, and for one that needs backquotes.
    """
    start, following = cursor.token, cursor.ahead()
    if following.start == start.end and following.text in {"-", ".", "/"}:
        written = _UNQUOTED_NAME.match(cursor.source.text, start.start)
        if written is not None:
            cursor.refuse(f"expected {what}: write this one in backquotes, `{written[0]}`")
    if start.kind is Kind.NUMBER:
        cursor.refuse(f"expected {what}, found the number {start.text}: a name isn't one alone")
    text = cursor.name(f"{what}, plain or in backquotes")
    try:
        return branch_name(text)
    except InvalidRequest as error:
        raise cursor.source.error(str(error), start.start) from error


def _instant(cursor: Cursor) -> LakeInstant:
    """Parse AT INSTANT n or [AT] TIMESTAMP '...'."""
    cursor.accept("AT")
    if cursor.accept("TIMESTAMP"):
        return LakeInstant(timestamp=cursor.string("a timestamp in quotes"))
    if not cursor.accept("INSTANT"):
        cursor.fail("INSTANT n or TIMESTAMP '...'")
    token = cursor.token
    what = "the number of an instant of the lake, as txlake.commits shows it"
    sequence = _number(cursor, what)
    if sequence > _INSTANT_MAX:
        cursor.refuse(f"expected {what}, at most {_INSTANT_MAX}", token)
    return LakeInstant(sequence=sequence)


def _duration_ms(cursor: Cursor) -> int:
    """Parse n { WEEKS | DAYS | HOURS | MINUTES | SECONDS }, after RETAIN; return milliseconds.

    Raises InvalidRequest for no time, and for more than 36,500 days.
    """
    token = cursor.token
    number = _number(cursor, "a whole number, as in RETAIN 7 DAYS")
    unit = cursor.accept_any(*_UNITS)
    if unit is None:
        cursor.fail("WEEKS, DAYS, HOURS, MINUTES or SECONDS")
    duration_ms = number * interval_ms(f"1 {unit}")
    if not 0 < duration_ms <= _RETAINED_MS_MAX:
        cursor.refuse("a branch or a tag is retained for 1 second to 36,500 days", token)
    return duration_ms


def _number(cursor: Cursor, what: str) -> int:
    """Parse a whole number without a sign."""
    if cursor.token.kind is not Kind.NUMBER:
        cursor.fail(what)
    return cursor.integer(what)
