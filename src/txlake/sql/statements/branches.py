"""Statements on branches and tags, and the rule for their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.sql.statements.names import Table

MAIN = "main"
"""The name of the lake's tables without any branch, wherever the name of a branch may stand."""

_NAME_LENGTH_MAX = 255
_NAME = re.compile(r"\w[\w./-]*")


def branch_name(text: str) -> str:
    """Return the name of a branch or a tag as written, or MAIN for `main` in any letter case.

    A name has letters of any script, digits, `_`, `-`, `.` and `/`, at most 255 characters. It
    begins with a letter, a digit or `_`, and isn't a whole number, which would be a version of a
    table. The catalog compares names without regard to letter case.

    Raises:
        InvalidRequest: the text is no such name.
    """
    length = max(len(text), len(text.lower()))
    match = _NAME.match(text)
    found = None
    if not text:
        found = "it is empty"
    elif length > _NAME_LENGTH_MAX:
        found = f"it has {length} characters"
    elif text.isdecimal():
        found = "it is a number, as the version of a table is"
    elif match is None:
        found = f"it begins with {text[0]!r}"
    elif match.end() < len(text):
        found = f"character {match.end() + 1} is {text[match.end()]!r}"
    if found is not None:
        raise InvalidRequest(
            f"{text[:40]!r} can't name a branch or a tag: {found}; expected at most "
            f"{_NAME_LENGTH_MAX} letters, digits, _, -, . and /, a letter, a digit or _ first, and "
            "no number alone"
        )
    return MAIN if text.lower() == MAIN else text


@dataclass(frozen=True, slots=True)
class LakeInstant:
    """AT { INSTANT n | TIMESTAMP '...' }: an instant of the lake; exactly one of the two is set.

    Attributes:
        sequence: the instant's number, as `txlake.commits` shows it.
        timestamp: the text of a SQL timestamp literal, for the last instant by then.
    """

    sequence: int | None = None
    timestamp: str | None = None

    def __str__(self) -> str:
        if self.sequence is not None:
            return f"AT INSTANT {self.sequence}"
        return f"AT TIMESTAMP '{self.timestamp}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBranch:
    """CREATE BRANCH [IF NOT EXISTS] name [FROM BRANCH origin] [AT ...] [RETAIN n DAYS], or
    CREATE BRANCH [IF NOT EXISTS] name FOR TABLE table.

    Attributes:
        table: the path table of which it is a branch; None for a branch of the lake. So in the
            other statements on branches.
        origin: the branch to fork from, or MAIN; None for the session's current one.
        at: the instant of the origin to fork from; None for the newest.
        retain_ms: how long the branch is kept, in milliseconds; None for the default.
    """

    name: str
    origin: str | None = None
    at: LakeInstant | None = None
    retain_ms: int | None = None
    if_not_exists: bool = False
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class UseBranch:
    """USE BRANCH name; MAIN leaves the session's branch."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowBranches:
    """SHOW BRANCHES [FOR TABLE table] [[LIKE] 'pattern']."""

    pattern: str | None = None
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class DescribeBranch:
    """DESCRIBE BRANCH name [FOR TABLE table]: what the branch has changed, a row for each table."""

    name: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class ExplainPublish:
    """EXPLAIN PUBLISH BRANCH name [FOR TABLE table]: what would conflict if the branch were
    published now.
    """

    name: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class PublishBranch:
    """PUBLISH BRANCH name { [FOR TABLE table] [AS TRANSACTION] | PER TABLE }.

    Attributes:
        per_table: tables that nobody else changed get the branch's versions one by one.
    """

    name: str
    table: Table | None = None
    per_table: bool = False


@dataclass(frozen=True, slots=True)
class RebaseBranch:
    """REBASE BRANCH name [FOR TABLE table]: take in what its origin has committed since the
    fork.
    """

    name: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class DropBranch:
    """DROP BRANCH [IF EXISTS] name [FOR TABLE table]."""

    name: str
    if_exists: bool = False
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTag:
    """CREATE TAG [IF NOT EXISTS] name [AT ...] [RETAIN n DAYS]: a name for an instant of the lake.

    Attributes:
        at: the instant; None for the newest.
        retain_ms: how long the tag is kept, in milliseconds; None for the default.
    """

    name: str
    at: LakeInstant | None = None
    retain_ms: int | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropTag:
    """DROP TAG [IF EXISTS] name."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowTags:
    """SHOW TAGS [[LIKE] 'pattern']."""

    pattern: str | None = None


BranchStatement = (
    CreateBranch
    | UseBranch
    | ShowBranches
    | DescribeBranch
    | ExplainPublish
    | PublishBranch
    | RebaseBranch
    | DropBranch
    | CreateTag
    | DropTag
    | ShowTags
)
