"""The condition that every row which a query takes from its one table must meet.

With it a SELECT reads only files that may match, and under Serializable depends only on rows that
match. Anything but a plain SELECT from one table has no such condition here: it reads all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import Dialect, TokenType, exp, parse_one

from txlake.log.text_rules import TextRules
from txlake.sql.dialect import DIALECT, PARSER_FAILURES, parsed_select
from txlake.sql.statements import SqlText

_OF_ITS_OWN = (exp.Subquery, exp.Select, exp.SetOperation, exp.Exists, exp.Lateral, exp.Window)
ALL_COLUMNS = "*"
"""Stands among a query's names for the columns that it may use without naming them."""
_COMPUTING_NAMES = frozenset({"identifier"})
_WORD = re.compile(r"\w+")
_AFTER_WHERE = frozenset(
    {
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.QUALIFY,
        TokenType.WINDOW,
        TokenType.ORDER_BY,
        TokenType.SORT_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.SEMICOLON,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A query's WHERE condition, which all rows of its one table must meet.

    Attributes:
        text: sqlglot's rendering, for skipping and conflict checks.
        names: what may qualify its columns.
        own: the author's text, for Spark; None where its end isn't certain.
        alias: what the query calls the table, where it gives it another name.
    """

    text: str
    names: tuple[str, ...]
    own: SqlText | None
    alias: str | None


@lru_cache(maxsize=256)
def names_in(query: SqlText, rules: TextRules) -> frozenset[str] | None:
    """Return all words in a query that is one SELECT and reads one table of the lake, once: in
    lower case, with ALL_COLUMNS if it may use columns that it doesn't name.

    They are what stands in backquotes and every word outside, because columns may be called as
    sqlglot's keywords are (`current_user`, `all`). None for other queries: with joins or common
    table expressions, no SELECT that sqlglot parses, or one that names columns otherwise by the
    session's rules.
    """
    if not rules.agrees_on(query.text):
        return None
    if rules.backquotes_refusal is not None and "`" in query.text:
        return None  # a name in backquotes may be a pattern
    tree = _one_table_select(query)
    if tree is None:
        return None
    names = {one.name.lower() for one in tree.find_all(exp.Identifier)}
    names.update(word.lower() for word in _WORD.findall(query.text))
    has_star = any(not _is_counted(star) for star in tree.find_all(exp.Star))
    computes_names = any(
        one.name.lower() in _COMPUTING_NAMES for one in tree.find_all(exp.Anonymous)
    )
    if has_star or computes_names or tree.find(exp.Pivot) is not None:
        names.add(ALL_COLUMNS)
    return frozenset(names)


def _is_counted(star: exp.Star) -> bool:
    """Return whether a star is that of `count(*)`."""
    parent = star.parent
    return isinstance(parent, exp.Anonymous) and parent.name.lower() == "count"


def _one_table_select(query: SqlText) -> exp.Select | None:
    """Return the tree of a SELECT from one table, without joins and common table expressions; None
    for others, and for text that sqlglot doesn't parse.
    """
    if len(query.references) != 1:
        return None
    tree = parsed_select(query.text)
    if tree is None or tree.args.get("with_") or tree.args.get("with"):
        return None
    if tree.args.get("joins") or tree.args.get("laterals"):
        return None
    source = tree.args.get("from_") or tree.args.get("from")
    if source is None or not isinstance(source.this, exp.Table) or source.this.args.get("joins"):
        return None
    return tree


@lru_cache(maxsize=256)
def condition_of(query: SqlText) -> Filter | None:
    """Return the WHERE condition that all rows of a plain SELECT from one table meet.

    None without a WHERE, with joins, common table expressions, or a subquery or window in the
    condition, and for text that sqlglot doesn't parse as one SELECT.
    """
    tree = _one_table_select(query)
    where = None if tree is None else tree.args.get("where")
    if tree is None or where is None:
        return None
    source = tree.args.get("from_") or tree.args.get("from")
    condition = where.this
    if source is None or condition.find(*_OF_ITS_OWN):
        return None
    table = query.references[0].table
    names = (source.this.alias_or_name, str(table))
    return Filter(
        text=condition.sql(dialect="databricks"),
        names=tuple(name for name in names if name),
        own=next(
            (SqlText(text) for text in _after_where(query.text) if _is(text, condition)), None
        ),
        alias=source.this.alias or None,
    )


def _after_where(text: str) -> Iterator[str]:
    """Yield at most one text: the one after the query's own WHERE, up to the next clause."""
    depth, start = 0, None
    for token in Dialect.get_or_raise(DIALECT).tokenize(text):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth:
            continue
        if token.token_type is TokenType.WHERE and start is None:
            start = token.end + 1
        elif token.token_type in _AFTER_WHERE and start is not None:
            yield text[start : token.start]
            return
    if start is not None:
        yield text[start:]


def _is(text: str, condition: exp.Expression) -> bool:
    """Return whether a text parses as this condition; False for a text that doesn't parse."""
    try:
        return bool(parse_one(text, dialect=DIALECT) == condition)
    except PARSER_FAILURES:
        return False
