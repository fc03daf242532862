"""Spark's SQL as sqlglot reads it: Databricks' dialect, with names that begin as numbers do."""

from __future__ import annotations

from sqlglot import Token, TokenType
from sqlglot.dialects.databricks import Databricks
from sqlglot.dialects.dialect import DialectType


class SparkSql(Databricks):
    """Databricks' dialect in which `0x1F` is a name, as in Spark; bytes are `X'1F'`."""

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """Return the text's tokens. Raises sqlglot's errors."""
        return [_spark_token(one, sql) for one in super().tokenize(sql, dialect)]


def _spark_token(token: Token, sql: str) -> Token:
    text = sql[token.start : token.end + 1]
    is_name = token.token_type is TokenType.HEX_STRING and text[:1] == "0"
    return (
        Token(TokenType.VAR, text, token.line, token.col, token.start, token.end, token.comments)
        if is_name
        else token
    )
