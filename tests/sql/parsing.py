"""What the tests of SQL share: one statement from a text, and how short values are written."""

from __future__ import annotations

import re

import pytest

from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.markers import Arguments
from txlake.sql.statements import Query, SqlText, Statement, TableName


def one(text: str, args: Arguments | None = None) -> Statement:
    """The only statement of a text."""
    statements = parse(text, args)
    assert len(statements) == 1
    return statements[0]


def name(text: str) -> TableName:
    """A catalog table's name without quotes."""
    return TableName(tuple(text.split(".")))


def sql(text: str) -> SqlText:
    """A SQL text that reads no table."""
    return SqlText(text)


def query(text: str) -> Query:
    """A source that reads no table."""
    return Query(SqlText(text))


def refused(text: str, place: str, problem: str, args: Arguments | None = None) -> str:
    """Parse what must be refused at `place` (line:column) with a message that has `problem`."""
    with pytest.raises(InvalidRequest) as caught:
        parse(text, args)
    message = str(caught.value)
    found = re.search(r"at line (\d+), column (\d+)", message)
    assert found is not None, message
    assert f"{found[1]}:{found[2]}" == place, message
    assert problem in message
    return message
