"""txlake's SQL dialect: sqlglot's Databricks dialect, used for positions, never to generate SQL.

Three differences: no statement is one opaque command, because txlake parses the heads of
statements; hints are comments, because Spark gets them in the text; and functions are just names,
because Spark checks their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

from sqlglot import TokenType, exp, parse_one
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import SqlglotError

from txlake.log.spark_dialect import SparkSql
from txlake.log.text_rules import TextRules

# Besides its own errors sqlglot raises these on texts that break its parser's assumptions.
PARSER_FAILURES = (
    SqlglotError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)


class TxlakeSql(SparkSql):
    """Databricks SQL, every statement as plain tokens."""

    class Tokenizer(Databricks.Tokenizer):
        """Databricks' tokenizer without commands and hints."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Databricks.Tokenizer.KEYWORDS.items()
            if not word.startswith("/*+")
        }

    class Parser(Databricks.Parser):  # type: ignore[valid-type, misc]
        """Databricks' parser without knowledge of what functions take."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}

        def _warn_unsupported(self) -> None:
            """Log nothing: the caller gets an error that points at the position."""


class NamesInDoubleQuotes(TxlakeSql):
    """The dialect where `"a"` is a name: `spark.sql.ansi.doubleQuotedIdentifiers`."""

    class Tokenizer(TxlakeSql.Tokenizer):
        """The tokenizer with one kind of quotation marks for strings."""

        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


DIALECT = TxlakeSql()
_NAMES_IN_DOUBLE_QUOTES = NamesInDoubleQuotes()


@lru_cache(maxsize=256)
def parsed_select(text: str) -> exp.Select | None:
    """Return a text as the tree of its SELECT; None if it is anything else, such as a UNION or
    invalid.

    The tree is cached, and not to be changed.
    """
    try:
        tree = parse_one(text, dialect=DIALECT)
    except PARSER_FAILURES:
        return None
    return tree if isinstance(tree, exp.Select) else None


def dialect_of(rules: TextRules) -> TxlakeSql:
    """Return the dialect of a session's texts."""
    return _NAMES_IN_DOUBLE_QUOTES if rules.names_in_double_quotes else DIALECT
