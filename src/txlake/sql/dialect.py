"""The SQL dialect of txlake: sqlglot's Databricks dialect, read for its positions, never written.

Two differences: no statement is swallowed whole as a command, because their heads are parsed here,
and hints are comments, because Spark gets them as they stand in the text.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import TokenType
from sqlglot.dialects.databricks import Databricks


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


DIALECT = TxlakeSql()
