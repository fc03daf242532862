"""The rows of one query as CSV or Parquet, on standard output and alone there.

Owns which statements count as queries, and both forms. Whatever else a script answers is a note, so
that what stands on standard output is one file; it is written when the whole script has succeeded.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import BinaryIO, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.cli.output import Messages
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct, to_arrow_type
from txlake.sql import ScriptStatement
from txlake.statements import InspectionStatement, Select, Statement
from txlake.statements.descriptions import DescribeDetail, DescribeHistory
from txlake.views.json_values import json_text, json_value
from txlake.views.results import Column, Result

Form = Literal["csv", "parquet"]
_TO_QUOTE = re.compile(r'[",\r\n]|^\s|\s$|^$')


class Exported(Messages):
    """Keeps the rows of the script's one query until `write`."""

    rows_max: int | None = None

    def __init__(self, form: Form, out: BinaryIO | None = None, err: TextIO | None = None) -> None:
        super().__init__(err)
        self._form = form
        self._out = out
        self._result: Result | None = None

    def check(self, pieces: Sequence[ScriptStatement]) -> None:
        """Raises InvalidRequest unless one statement of the script is a query."""
        found = [piece.line for piece in pieces if _is_query(piece.statement)]
        if len(found) != 1:
            lines = f" (lines {', '.join(map(str, found))})" if found else ""
            raise InvalidRequest(
                f"--format {self._form} writes the rows of one query, and the script has "
                f"{len(found) or 'none'}{lines}; give one SELECT, SHOW or DESCRIBE, or --format "
                "json, which shows every answer"
            )

    def answer(self, result: Result, piece: ScriptStatement, elapsed_ms: float) -> None:
        if _is_query(piece.statement):
            self._result = result
            return
        said = "OK"
        if len(result.rows) == 1:
            named = zip(result.columns, result.rows[0])
            said = ", ".join(f"{column.name} {value}" for column, value in named)
        elif result.columns:
            said = f"{result.total:,} rows"
        self.note(f"line {piece.line}: {said}")

    def listing(self, result: Result) -> None:
        self._result = result

    def write(self) -> None:
        """Writes the rows. Raises InvalidRequest for a type that Parquet files can't have."""
        assert self._result is not None, "the script has been checked"
        made = csv_file(self._result) if self._form == "csv" else parquet_file(self._result)
        out = self._out or sys.stdout.buffer
        out.write(made)
        out.flush()


def _is_query(statement: Statement) -> bool:
    return isinstance(statement, Select | InspectionStatement | DescribeHistory | DescribeDetail)


def csv_file(result: Result) -> bytes:
    """The rows as RFC 4180 has them, in UTF-8, with a line of names before.

    NULL is nothing at all, and an empty text is `""`. Values are written as in JSON.
    """
    out = io.StringIO()
    for row in ([column.name for column in result.columns], *result.rows):
        out.write(",".join(map(_csv_value, row)) + "\n")
    return out.getvalue().encode()


def _csv_value(value: object) -> str:
    if value is None:
        return ""
    plain = json_value(value)
    text = plain if isinstance(plain, str) else json_text(plain)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if _TO_QUOTE.search(text) else text


def parquet_file(result: Result) -> bytes:
    """The rows as one Parquet file, with the types of the query's columns."""
    arrays = [
        _array(column, [row[place] for row in result.rows])
        for place, column in enumerate(result.columns)
    ]
    table = pa.Table.from_arrays(arrays, names=[column.name for column in result.columns])
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _array(column: Column, values: Sequence[object]) -> pa.Array:
    try:
        kind = parse_type(column.json)
        return pa.array([_arrow_value(one, kind) for one in values], to_arrow_type(kind))
    except (TxlakeError, pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"--format parquet: column {column.name!r} is {column.type}, which can't be written to "
            "a Parquet file here; cast it in the query, or use --format json"
        ) from error


def _arrow_value(value: object, kind: DataType) -> object:
    """The value as Arrow takes it, maps as pairs. Raises ValueError for what it would lose."""
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
