"""The rows of one query as CSV or Parquet, alone on standard output.

Owns which statements count as queries, and both formats. Results of other statements are notes, so
that standard output is one file. It is written once the whole script has succeeded.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import BinaryIO, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.cli.output import MessageOutput
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct, to_arrow_type
from txlake.session.views.json_values import json_text, json_value
from txlake.session.views.results import Column, Result
from txlake.sql import ScriptStatement
from txlake.sql.statements import InspectionStatement, Select, Statement
from txlake.sql.statements.descriptions import DescribeDetail, DescribeHistory

ExportFormat = Literal["csv", "parquet"]
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$|^$')


class ExportOutput(MessageOutput):
    """An output that keeps the rows of the script's one query until `write`."""

    rows_max: int | None = None

    def __init__(
        self, format_: ExportFormat, out: BinaryIO | None = None, err: TextIO | None = None
    ) -> None:
        super().__init__(err)
        self._format = format_
        self._out = out
        self._result: Result | None = None

    def check(self, pieces: Sequence[ScriptStatement]) -> None:
        """Raise InvalidRequest unless exactly one statement of the script is a query: SELECT, SHOW,
        DESCRIBE.
        """
        query_lines = [piece.line for piece in pieces if _is_query(piece.statement)]
        if len(query_lines) != 1:
            lines = f" (lines {', '.join(map(str, query_lines))})" if query_lines else ""
            raise InvalidRequest(
                f"--format {self._format} writes the rows of one query, and the script has "
                f"{len(query_lines) or 'none'}{lines}; give one SELECT, SHOW or DESCRIBE, or "
                "--format "
                "json, which shows every answer"
            )

    def answer(self, result: Result, piece: ScriptStatement, elapsed_ms: float) -> None:
        """Keep the result of a query; note any other statement's on standard error."""
        if _is_query(piece.statement):
            self._result = result
            return
        text = "OK"
        if len(result.rows) == 1:
            values = zip(result.columns, result.rows[0])
            text = ", ".join(f"{column.name} {value}" for column, value in values)
        elif result.columns:
            text = f"{result.total:,} rows"
        self.note(f"line {piece.line}: {text}")

    def listing(self, result: Result) -> None:
        self._result = result

    def write(self) -> None:
        """Write the rows to standard output, all at once.

        Raises InvalidRequest for a type that a Parquet file can't have.
        """
        assert self._result is not None, "the script has been checked"
        content = csv_file(self._result) if self._format == "csv" else parquet_file(self._result)
        out = self._out or sys.stdout.buffer
        out.write(content)
        out.flush()


def _is_query(statement: Statement) -> bool:
    return isinstance(statement, Select | InspectionStatement | DescribeHistory | DescribeDetail)


def csv_file(result: Result) -> bytes:
    """Return the rows as CSV by RFC 4180, but with LF as line end, in UTF-8, with a header line.

    NULL is an empty field, an empty text is `""`. Values are written as in JSON.
    """
    out = io.StringIO()
    for row in ([column.name for column in result.columns], *result.rows):
        out.write(",".join(map(_csv_value, row)) + "\n")
    return out.getvalue().encode()


def _csv_value(value: object) -> str:
    """Return a value as a field of CSV, in quotes where it needs them; NULL is an empty field."""
    if value is None:
        return ""
    plain = json_value(value)
    text = plain if isinstance(plain, str) else json_text(plain)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if _NEEDS_QUOTES.search(text) else text


def parquet_file(result: Result) -> bytes:
    """Return the rows as a Parquet file, with the types of the query's columns.

    Raises InvalidRequest for a type that can't be written.
    """
    arrays = [
        _array(column, [row[index] for row in result.rows])
        for index, column in enumerate(result.columns)
    ]
    table = pa.Table.from_arrays(arrays, names=[column.name for column in result.columns])
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _array(column: Column, values: Sequence[object]) -> pa.Array:
    """Return a column's values as Arrow. Raises InvalidRequest for a type that can't be written."""
    try:
        kind = parse_type(column.json)
        return pa.array([_arrow_value(value, kind) for value in values], to_arrow_type(kind))
    except (TxlakeError, pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"--format parquet: column {column.name!r} is {column.type}, which can't be written to "
            "a Parquet file here; cast it in the query, or use --format json"
        ) from error


def _arrow_value(value: object, kind: DataType) -> object:
    """Return the value for Arrow, maps as pairs. Raises ValueError if something would be lost."""
    match kind, value:
        case Primitive("variant"), _:
            raise ValueError("a variant has no type")
        case Map(key=key, value=of), dict():
            return [(name, _arrow_value(one, of)) for name, one in value.items()]
        case Map(key=key, value=of), list():
            return [
                (_arrow_value(one["key"], key), _arrow_value(one["value"], of)) for one in value
            ]
        case Array(element=element), list():
            return [_arrow_value(one, element) for one in value]
        case Struct(fields=fields), dict():
            if len(value) < len(fields):
                raise ValueError("two fields have one name")
            return {item.name: _arrow_value(value[item.name], item.type) for item in fields}
        case _:
            return value
