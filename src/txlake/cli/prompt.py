"""`txlake sql` on a terminal: a prompt that shows where the session's transaction stands.

Owns the prompt's own commands and what the keys do; statements run as a script's do.
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
from txlake.cli.output import Drawn, Output
from txlake.cli.scripts import Runner
from txlake.cli.work import Standing, Worker
from txlake.errors import TxlakeError
from txlake.sql import is_complete, parse_script
from txlake.system import System

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output as Screen

HELP = r"""Statements end with a ; and may take several lines. Ctrl-C cancels what is typed, or the
statement that runs; Ctrl-D leaves, and rolls an open transaction back.

The prompt is the database; after it * stands for an open transaction and ! for one that failed and
waits for ROLLBACK, with its isolation level: sales*[serializable]>

  \d          the tables of the database        \l        the databases
  \d TABLE    a table's columns                 \timing   says how long statements take, or not
  \h TABLE    a table's history                 \q        leaves
  \?          this"""


_LEAVING = {"\\q", "quit", "exit"}
_WORDS = {"help", "quit", "exit"}


class Prompt:
    """Reads statements from a terminal and runs them, until it is left."""

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
        self._runner = Runner(worker=worker, output=output, system=System(), retries=retries)
        self._reader: PromptSession[str] = PromptSession(
            history=_history(state_folder),
            completer=SqlCompleter(self._names),
            complete_while_typing=False,
            multiline=Condition(lambda: not is_whole(get_app().current_buffer.text)),
            prompt_continuation=_continuation,
            input=keys,
            output=screen,
        )
        if isinstance(output, Drawn):
            output.is_prompt = output.shows_times = True

    def run(self) -> None:
        """Until Ctrl-D or quit; an open transaction is rolled back then, and that is said."""
        if isinstance(self._output, Drawn):  # a program that reads JSON needs no greeting
            self._output.note(r"txlake: \? for help, \q or Ctrl-D to leave")
        while True:
            try:
                text = self._reader.prompt(self._prompt())
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if text.strip().rstrip("; ").lower() in _LEAVING:
                break
            self.enter(text)
        if self._worker.rollback():
            self._output.note("the open transaction was rolled back: nothing of it is kept")

    def enter(self, text: str) -> None:
        """Runs what was typed; what goes wrong is shown."""
        self._runner.at = None
        try:
            self._runner.run(parse_script(self._sql(text)))
        except TxlakeError as error:
            if self._runner.at is None:
                self._worker.misread(error)
            self._output.error(error, self._runner.at)
        except KeyboardInterrupt as interrupt:
            self._output.error(interrupt, self._runner.at)
        else:
            return
        standing = self._standing()
        if standing is not None and standing.failed:
            self._output.note("the transaction was rolled back; end it with ROLLBACK")

    def _sql(self, text: str) -> str:
        """The SQL that was typed, or that one of the prompt's own commands stands for."""
        stripped = text.strip()
        if not is_command(stripped):
            return text
        command, _, table = stripped.rstrip(";").partition(" ")
        match command.lower(), table.strip():
            case "\\d", "":
                return "SHOW TABLES"
            case "\\d", named:
                return f"DESCRIBE TABLE {named}"
            case "\\h", named if named:
                return f"DESCRIBE HISTORY {named}"
            case "\\l", "":
                return "SHOW DATABASES"
            case "\\timing", "":
                self._time()
            case "\\?" | "help", "":
                self._output.note(HELP)
            case _:
                self._output.note(rf"{stripped} is no command; \? lists them")
        return ""

    def _time(self) -> None:
        if isinstance(self._output, Drawn):
            self._output.shows_times = not self._output.shows_times
            self._output.note(f"timing is {'on' if self._output.shows_times else 'off'}")

    def _standing(self) -> Standing | None:
        """Where the session stands; None while the catalog can't say."""
        try:
            return self._worker.standing()
        except TxlakeError:
            return None

    def _prompt(self) -> str:
        standing = self._standing()
        return "txlake?> " if standing is None else prompt_text(standing)

    def _names(self) -> Sequence[str]:
        try:
            return self._worker.names()
        except TxlakeError:
            return []


def prompt_text(standing: Standing) -> str:
    """`sales> `; in a transaction `sales*[snapshot]> `; after its failure `sales![snapshot]> `."""
    if standing.transaction is None:
        return f"{standing.database}> "
    mark = "!" if standing.failed else "*"
    level = standing.isolation + (", read only" if standing.read_only else "")
    return f"{standing.database}{mark}[{level}]> "


def is_command(text: str) -> bool:
    """Whether a text is for the prompt itself: a backslash and a word, help, quit or exit."""
    return text.startswith("\\") or text.rstrip("; ").lower() in _WORDS


def is_whole(text: str) -> bool:
    """Whether Enter runs the text rather than beginning another line."""
    stripped = text.strip()
    return not stripped or is_command(stripped) or is_complete(text)


def _continuation(width: int, line_number: int, wrap_count: int) -> str:
    return "-> ".rjust(width)


def _history(folder: Path | None) -> History:
    """The lines typed before, in a file that only this user may read, where one can be kept."""
    if folder is None:
        return InMemoryHistory()
    path = folder / "history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
