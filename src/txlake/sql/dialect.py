"""The SQL dialect of txlake: sqlglot's Databricks dialect, read for its positions, never written.

Three differences: no statement is swallowed whole as a command, because their heads are parsed
here; hints are comments, because Spark gets them as they stand in the text; and functions are just
names, because their arguments are Spark's to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import SqlglotError

from txlake.log.text_rules import TextRules

# Beside its own errors sqlglot raises these on texts that break its rules' assumptions.
PARSER_FAILURES = (
    SqlglotError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)


class TxlakeSql(Databricks):
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
            """No log line: the caller gets an error that points at the place."""


class NamesInDoubleQuotes(TxlakeSql):
    """The same where `"a"` is a name: `spark.sql.ansi.doubleQuotedIdentifiers`."""

    class Tokenizer(TxlakeSql.Tokenizer):
        """The tokenizer with one kind of quotation marks for strings."""

        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


DIALECT = TxlakeSql()
_NAMES_IN_DOUBLE_QUOTES = NamesInDoubleQuotes()


def dialect_of(rules: TextRules) -> TxlakeSql:
    """The dialect of a session's texts."""
    return _NAMES_IN_DOUBLE_QUOTES if rules.names_in_double_quotes else DIALECT
