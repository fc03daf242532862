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


DIALECT = TxlakeSql()
