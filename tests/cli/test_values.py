"""Values as JSON and as text, columns with names of their own."""

from __future__ import annotations

import datetime
import decimal
import io
import json

import pytest

from txlake.cli.output import JsonOutput, TableOutput
from txlake.cli.values import text_value
from txlake.session.views.json_values import json_text, json_value
from txlake.session.views.results import Column, Result, mappings_result
from txlake.sql import parse_script

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000, datetime.UTC)
(PIECE,) = parse_script("SELECT 1")


@pytest.mark.parametrize(
    ("value", "as_json", "text"),
    [
        (None, None, "NULL"),
        (True, True, "true"),
        (12, 12, "12"),
        (1.5, 1.5, "1.5"),
        (float("nan"), "NaN", "NaN"),
        (float("-inf"), "-Infinity", "-Infinity"),
        (decimal.Decimal("0.10"), "0.10", "0.10"),
        (decimal.Decimal("1E+3"), "1000", "1000"),
        (MOMENT, "2026-01-02T03:04:05.600000+00:00", "2026-01-02 03:04:05.600+00:00"),
        (
            MOMENT.replace(microsecond=123),
            "2026-01-02T03:04:05.000123+00:00",
            "2026-01-02 03:04:05.000123+00:00",
        ),
        (MOMENT.replace(tzinfo=None), "2026-01-02T03:04:05.600000", "2026-01-02 03:04:05.600"),
        (datetime.date(2026, 1, 2), "2026-01-02", "2026-01-02"),
        (datetime.timedelta(days=1, seconds=2), "1 day, 0:00:02", "1 day, 0:00:02"),
        (b"\x01\xff", "Af8=", "X'01FF'"),
        (["ä", None], ["ä", None], '["ä", null]'),
        ({"at": MOMENT.date()}, {"at": "2026-01-02"}, '{"at": "2026-01-02"}'),
        ("[bold]", "[bold]", "[bold]"),
    ],
)
def test_a_value(value: object, as_json: object, text: str) -> None:
    assert json_value(value) == as_json
    assert text_value(value) == text


def test_a_line_of_json_is_one_line_and_readable() -> None:
    assert json_text({"a": "ä\n", "b": float("inf")}) == '{"a": "ä\\n", "b": "Infinity"}'


def test_rows_that_lack_a_column_are_null_there() -> None:
    made = mappings_result({"a": "int", "b": "string"}, [{"a": 1}, {"b": "x", "c": 0}])
    assert made.columns == (Column("a", "int"), Column("b", "string"))
    assert made.rows == [(1, None), (None, "x")]
    assert made.total == 2


def test_what_is_a_number() -> None:
    assert Column("c", "decimal(10,2)").is_number
    assert Column("c", "bigint").is_number
    assert not Column("c", "string").is_number
    assert not Column("c", "interval day to second").is_number


def drawn(result: Result, *, listing: bool = False) -> list[str]:
    out = io.StringIO()
    screen = TableOutput(2, out, io.StringIO())
    if listing:
        screen.listing(result)
    else:
        screen.answer(result, PIECE, 1234.0)
    return out.getvalue().splitlines()


def test_a_drawn_table_aligns_numbers_and_shows_everything_in_a_pipe() -> None:
    long = "x" * 300
    made = Result(
        columns=(Column("id", "int"), Column("[name]", "string")),
        rows=[(1, "[red]a"), (100, None), (None, long)],
        total=3,
    )
    lines = drawn(made)
    assert lines[1].startswith("|   id | [name] ")
    assert lines[3].startswith("|    1 | [red]a ")
    assert lines[4].startswith("|  100 | NULL ")
    assert lines[5].startswith(f"| NULL | {long} |")
    assert lines[-1] == "3 rows"


def test_what_was_cut_is_said() -> None:
    one = Column("id", "int")
    assert drawn(Result(columns=(one,), rows=[(1,), (2,)], total=1_234))[-1] == (
        "the first 2 of 1,234 rows"
    )
    assert drawn(Result(columns=(one,), rows=[(1,)], total=1))[-1] == "1 row"
    assert drawn(Result(columns=(one,), rows=[], total=0))[-1] == "0 rows"
    assert drawn(Result(columns=(), rows=[], total=0)) == ["OK"]


def test_the_time_is_said() -> None:
    out = io.StringIO()
    screen = TableOutput(None, out, io.StringIO())
    screen.shows_times = True
    screen.answer(Result(columns=(), rows=(), total=0), PIECE, 1234.0)
    assert out.getvalue() == "OK (1.23 s)\n"


def test_a_listing_leaves_out_columns_without_a_value() -> None:
    made = mappings_result({"a": "int", "b": "string", "c": "int"}, [{"a": 1, "c": None}, {"a": 2}])
    assert drawn(made, listing=True)[1] == "| a |"
    assert drawn(mappings_result({"a": "int", "b": "string"}, []), listing=True) == ["0 rows"]


def test_json_lines_of_an_answer_and_of_a_listing() -> None:
    out = io.StringIO()
    lines = JsonOutput(out, io.StringIO())
    made = mappings_result({"a": "int", "b": "string"}, [{"a": 1, "b": None}])
    lines.answer(made, PIECE, 12.6)
    lines.listing(made)
    answer, row = map(json.loads, out.getvalue().splitlines())
    assert answer == {
        "statement": "SELECT 1",
        "line": 1,
        "columns": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
        "rows": [{"a": 1, "b": None}],
        "elapsed_ms": 13,
    }
    assert row == {"a": 1, "b": None}
