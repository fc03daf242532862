"""Where results, notes and errors go: tables for people, or JSON lines for programs.

Results go to standard output, notes and errors to standard error.
"""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from txlake.cli.exit_codes import error_facts
from txlake.cli.values import text_value
from txlake.session.views.json_values import json_text
from txlake.session.views.results import Result
from txlake.sql import ScriptStatement

_PIPE_WIDTH = 100_000  # without a terminal nothing is cut or folded


class Output(Protocol):
    """The output of every command.

    Attributes:
        rows_max: the number of rows that are shown of a result; None for all.
    """

    rows_max: int | None

    def answer(self, result: Result, piece: ScriptStatement, elapsed_ms: float) -> None:
        """Show a statement's result."""

    def listing(self, result: Result) -> None:
        """Show the rows of a command without SQL."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def error(self, error: BaseException, piece: ScriptStatement | None = None) -> None:
        """Show the error that ended the command, and its statement."""


class JsonOutput:
    """One JSON object a line: a statement's result, a row of a listing, a note or an error."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.rows_max: int | None = None
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def answer(self, result: Result, piece: ScriptStatement, elapsed_ms: float) -> None:
        """Print the statement, its result's columns and rows, and its time as one object."""
        names = [column.name for column in result.columns]
        self._print(
            {
                "statement": piece.text,
                "line": piece.line,
                "columns": [
                    {"name": column.name, "type": column.type} for column in result.columns
                ],
                "rows": [dict(zip(names, row)) for row in result.rows],
                "elapsed_ms": round(elapsed_ms),
            }
        )

    def listing(self, result: Result) -> None:
        """Print each row as an object."""
        names = [column.name for column in result.columns]
        for row in result.rows:
            self._print(dict(zip(names, row)))

    def note(self, text: str) -> None:
        self._print_message({"note": text})

    def error(self, error: BaseException, piece: ScriptStatement | None = None) -> None:
        """Print the error's facts, with its statement and line, to standard error."""
        facts = error_facts(error)
        if piece is not None:
            facts |= {"statement": piece.text, "line": piece.line}
        self._print_message({"error": facts})

    def _print(self, value: dict[str, object]) -> None:
        print(json_text(value), file=self._out, flush=True)

    def _print_message(self, value: dict[str, object]) -> None:
        print(json_text(value), file=self._err, flush=True)


class MessageOutput:
    """Notes and errors for people, on standard error.

    Attributes:
        is_interactive: statements are typed, so errors don't need a line number.
    """

    def __init__(self, err: TextIO | None = None) -> None:
        self.is_interactive = False
        self._err = _console(err or sys.stderr)

    def note(self, text: str) -> None:
        self._err.print(Text(text, "yellow"))

    def error(self, error: BaseException, piece: ScriptStatement | None = None) -> None:
        """Print the error's class, line and message."""
        where = f" (line {piece.line})" if piece is not None and not self.is_interactive else ""
        name = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        message = f": {error}" if str(error) else ""
        self._err.print(Text.assemble((f"{name}{where}", "bold red"), message))


class TableOutput(MessageOutput):
    """Tables for people: numbers right-aligned, NULL dimmed, long results cut and counted.

    A listing's columns without any value are left out.

    Attributes:
        shows_times: whether results show how long they took.
    """

    def __init__(
        self, rows_max: int | None, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        super().__init__(err)
        self.rows_max = rows_max
        self.shows_times = False
        self._out = _console(out or sys.stdout)

    def answer(self, result: Result, piece: ScriptStatement, elapsed_ms: float) -> None:
        """Print the rows, if the statement has a result, and how many they are."""
        if result.columns:
            self._out.print(_table(result, self._out.is_terminal))
        self._out.print(Text(_summary(result, elapsed_ms if self.shows_times else None), "dim"))

    def listing(self, result: Result) -> None:
        """Print the rows without empty columns, and how many they are."""
        filled_columns = [
            index
            for index in range(len(result.columns))
            if any(row[index] is not None for row in result.rows)
        ]
        shown = Result(
            columns=tuple(result.columns[index] for index in filled_columns),
            rows=[tuple(row[index] for index in filled_columns) for row in result.rows],
            total=result.total,
        )
        if shown.rows:
            self._out.print(_table(shown, self._out.is_terminal))
        self._out.print(Text(_summary(result, None), "dim"))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for the command to handle; rich would exit here."""
        raise BrokenPipeError


def _console(file: TextIO) -> Console:
    """Return rich's console for a file, which folds no lines unless it is a terminal."""
    console = _Console(file=file, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def _table(result: Result, is_terminal: bool) -> Table:
    """Return the result as rich's table, in ASCII unless for a terminal."""
    table = Table(box=box.ROUNDED if is_terminal else box.ASCII2, header_style="bold")
    for column in result.columns:
        table.add_column(
            Text(column.name), justify="right" if column.is_number else "left", overflow="fold"
        )
    for row in result.rows:
        table.add_row(*(Text(text_value(value), "dim" if value is None else "") for value in row))
    return table


def _summary(result: Result, elapsed_ms: float | None) -> str:
    """Return how many rows are shown, or OK without columns, and the time if it is given."""
    shown = len(result.rows)
    if not result.columns:
        text = "OK"
    elif result.total > shown:
        text = f"the first {shown:,} of {result.total:,} rows"
    else:
        text = "1 row" if shown == 1 else f"{shown:,} rows"
    return text if elapsed_ms is None else f"{text} ({elapsed_ms / 1000:.2f} s)"
