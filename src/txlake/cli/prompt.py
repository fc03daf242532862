"""`txlake sql` on a terminal: a prompt that shows the state of the session's transaction.

Owns the prompt's own commands and keys. Statements run as in a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from txlake.cli.completion import SqlCompleter
from txlake.cli.output import Output, TableOutput
from txlake.cli.scripts import ScriptRunner
from txlake.cli.worker import SessionState, Worker
from txlake.errors import TxlakeError
from txlake.sql import is_complete, parse_script
from txlake.system import System

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output as Screen

HELP = r"""Statements end with a ; and may take several lines. Ctrl-C cancels what is typed, or the
statement that runs; Ctrl-D leaves, and rolls an open transaction back.

The prompt is the database, with the branch in use, if it isn't main: sales@nightly>. After it *
stands for an open transaction and ! for one that failed and waits for ROLLBACK, with its isolation
level: sales*[serializable]>

  \d          the tables of the database        \l        the databases
  \d TABLE    a table's columns                 \timing   says how long statements take, or not
  \h TABLE    a table's history                 \q        leaves
  \?          this"""


_QUIT_COMMANDS = {"\\q", "quit", "exit"}
_WORD_COMMANDS = {"help", "quit", "exit"}


class Prompt:
    """A prompt that reads statements from a terminal and runs them, until the user quits."""

    def __init__(
        self,
        worker: Worker,
        output: Output,
        *,
        retries: int = 0,
        state_folder: Path | None = None,
        keys: Input | None = None,
        screen: Screen | None = None,
    ) -> None:
        self._worker = worker
        self._output = output
        self._runner = ScriptRunner(worker=worker, output=output, system=System(), retries=retries)
        self._reader: PromptSession[str] = PromptSession(
            history=_history(state_folder),
            completer=SqlCompleter(self._names, self._branches),
            complete_while_typing=False,
            multiline=Condition(lambda: not is_ready_to_run(get_app().current_buffer.text)),
            prompt_continuation=_continuation,
            input=keys,
            output=screen,
        )
        if isinstance(output, TableOutput):
            output.is_interactive = output.shows_times = True

    def run(self) -> None:
        """Run until Ctrl-D or quit; then an open transaction is rolled back, with a note."""
        if isinstance(self._output, TableOutput):  # programs that read JSON need no greeting
            self._output.note(r"txlake: \? for help, \q or Ctrl-D to leave")
        while True:
            try:
                text = self._reader.prompt(self._prompt())
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if text.strip().rstrip("; ").lower() in _QUIT_COMMANDS:
                break
            self.execute(text)
        if self._worker.rollback():
            self._output.note("the open transaction was rolled back: nothing of it is kept")

    def execute(self, text: str) -> None:
        """Run a typed text of statements, or a prompt's own command, and show its error.

        A text that can't be parsed fails the open transaction, as a failed statement does.
        """
        self._runner.current = None
        try:
            self._runner.run(parse_script(self._sql(text)))
        except TxlakeError as error:
            if self._runner.current is None:
                self._worker.parse_failed(error)
            self._output.error(error, self._runner.current)
        except KeyboardInterrupt as interrupt:
            self._output.error(interrupt, self._runner.current)
        else:
            return
        state = self._session_state()
        if state is not None and state.failed:
            self._output.note("the transaction was rolled back; end it with ROLLBACK")

    def _sql(self, text: str) -> str:
        """Return the typed SQL, or that of the prompt's own command.

        Empty for a command without SQL, which is carried out, and for an unknown one.
        """
        stripped = text.strip()
        if not is_command(stripped):
            return text
        command, _, table = stripped.rstrip(";").partition(" ")
        match command.lower(), table.strip():
            case "\\d", "":
                return "SHOW TABLES"
            case "\\d", table_name:
                return f"DESCRIBE TABLE {table_name}"
            case "\\h", table_name if table_name:
                return f"DESCRIBE HISTORY {table_name}"
            case "\\l", "":
                return "SHOW DATABASES"
            case "\\timing", "":
                self._toggle_timing()
            case "\\?" | "help", "":
                self._output.note(HELP)
            case _:
                self._output.note(rf"{stripped} is no command; \? lists them")
        return ""

    def _toggle_timing(self) -> None:
        """Show from now on how long statements take, or no longer; nothing for JSON."""
        if isinstance(self._output, TableOutput):
            self._output.shows_times = not self._output.shows_times
            self._output.note(f"timing is {'on' if self._output.shows_times else 'off'}")

    def _session_state(self) -> SessionState | None:
        """Return the session's state; None while the catalog is unavailable."""
        try:
            return self._worker.state()
        except TxlakeError:
            return None

    def _prompt(self) -> str:
        state = self._session_state()
        return "txlake?> " if state is None else prompt_text(state)

    def _names(self) -> Sequence[str]:
        """Return the names for completion; none while the catalog is unavailable."""
        try:
            return self._worker.names()
        except TxlakeError:
            return []

    def _branches(self) -> Sequence[str]:
        """Return the branches and tags for completion; none while the catalog is unavailable."""
        try:
            return self._worker.branches()
        except TxlakeError:
            return []


def prompt_text(state: SessionState) -> str:
    """Return `sales> `; in a transaction `sales*[snapshot]> `, and `sales![snapshot]> ` once it
    failed; on a branch `sales@nightly> ` and the like.
    """
    place = state.database if state.branch is None else f"{state.database}@{state.branch}"
    if state.transaction is None:
        return f"{place}> "
    mark = "!" if state.failed else "*"
    level = state.isolation + (", read only" if state.read_only else "")
    return f"{place}{mark}[{level}]> "


def is_command(text: str) -> bool:
    """Return whether a text is a prompt command: it begins with a backslash, or is help, quit or
    exit.
    """
    return text.startswith("\\") or text.rstrip("; ").lower() in _WORD_COMMANDS


def is_ready_to_run(text: str) -> bool:
    """Return whether Enter runs the text instead of beginning another line."""
    stripped = text.strip()
    return not stripped or is_command(stripped) or is_complete(text)


def _continuation(width: int, line_number: int, wrap_count: int) -> str:
    return "-> ".rjust(width)


def _history(folder: Path | None) -> History:
    """Return the typed lines, in a file that only this user may read.

    In memory without a folder, and if the file can't be written.
    """
    if folder is None:
        return InMemoryHistory()
    path = folder / "history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
