"""A script: its statements one after the other, and again from BEGIN where a conflict ended one.

Owns what is run again. What was committed is never run twice: an autocommit statement is run again
alone, a transaction from its BEGIN, and nothing before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txlake.cli.output import Output
from txlake.cli.work import Worker
from txlake.conflict.evidence import is_futile
from txlake.errors import Conflict, InvalidRequest
from txlake.ports import System
from txlake.settings import RetrySettings
from txlake.sql import ScriptStatement
from txlake.statements import Atomic, CreateTemporaryView, ExecuteImmediate, SparkCommand
from txlake.statements.scripting import DeclareVariable, SetVariables, steps_of
from txlake.views.results import Result


@dataclass(frozen=True, slots=True)
class _Answered:
    piece: ScriptStatement
    result: Result
    elapsed_ms: float


@dataclass(kw_only=True)
class Runner:
    """Runs statements on a worker and shows what they answer.

    Attributes:
        retries: how often each transaction, or autocommit statement, is run again after a conflict.
        at: the statement that runs, or ran last.
    """

    worker: Worker
    output: Output
    system: System
    retries: int = 0
    waits: RetrySettings = field(default_factory=RetrySettings)
    at: ScriptStatement | None = None
    _held_back: list[_Answered] = field(default_factory=list)

    def script(self, pieces: Sequence[ScriptStatement]) -> None:
        """Runs a whole script. A transaction that is open when it ends is rolled back.

        Raises what a statement raised, and InvalidRequest for a script that ends in a transaction.
        """
        try:
            self.run(pieces)
            if self.worker.standing().transaction is not None:
                raise InvalidRequest(
                    "the script ends inside a transaction, which is rolled back; end it with "
                    "COMMIT or ROLLBACK"
                )
        except BaseException:
            if self.worker.rollback():
                self.output.note("the open transaction was rolled back: nothing of it is kept")
            raise

    def run(self, pieces: Sequence[ScriptStatement]) -> None:
        """Runs statements; a transaction that they leave open stays open.

        Answers of a transaction that may be run again are shown when it has ended.
        """
        before = self.worker.standing()
        opened_before = before.transaction is not None
        unit = index = losses = 0  # `unit`: where what would be run again begins
        try:
            while index < len(pieces):
                try:
                    self._run(pieces[index])
                except Conflict as conflict:
                    again = pieces[unit : index + 1]
                    is_last = losses == self.retries or opened_before or is_futile(conflict)
                    if is_last or self._is_unrepeatable(again):
                        raise
                    losses += 1
                    self._held_back.clear()
                    self.worker.rollback()
                    self.worker.use(before.database)
                    self._wait(conflict, losses, again[0])
                    index = unit
                    continue
                index += 1
                standing = self.worker.standing()
                if standing.transaction is None:
                    before, opened_before, unit, losses = standing, False, index, 0
                if standing.transaction is None or not self.retries:
                    self._show()
        finally:
            self._show()

    def _run(self, piece: ScriptStatement) -> None:
        self.at = piece
        start_ms = self.system.monotonic_ms()
        result = self.worker.run(piece.text, self.output.rows_max)
        self._held_back.append(_Answered(piece, result, self.system.monotonic_ms() - start_ms))

    def _show(self) -> None:
        for one in self._held_back:
            self.output.answer(one.result, one.piece, one.elapsed_ms)
        self._held_back.clear()

    def _is_unrepeatable(self, pieces: Sequence[ScriptStatement]) -> bool:
        """Whether a second run would start from another session than the first one did."""
        for piece in pieces:
            if _changes_spark(piece.statement):
                self.output.note(
                    f"not run again: line {piece.line} changed Spark's session, which a second run "
                    "would find changed; such statements belong before BEGIN"
                )
                return True
        return False

    def _wait(self, conflict: Conflict, losses: int, first: ScriptStatement) -> None:
        self.output.note(
            f"{type(conflict).__name__}: run again from line {first.line} "
            f"({losses} of {self.retries})"
        )
        wait_ms = min(self.waits.wait_ms_max, self.waits.wait_ms_min * 2**losses)
        self.system.wait_ms(wait_ms * (0.5 + self.system.random() / 2))


def _changes_spark(statement: object) -> bool:
    match statement:
        case SparkCommand(command):
            return not command.text.lstrip().upper().startswith("EXPLAIN")
        case CreateTemporaryView():
            return True
        case Atomic():
            steps = list(steps_of((*statement.statements, *statement.handlers)))
            own = {
                name.lower()
                for step in steps
                if isinstance(step, DeclareVariable)
                for name in step.names
            }
            return any(
                any(name.lower() not in own for name in step.names)
                if isinstance(step, SetVariables)
                else _changes_spark(step)
                for step in steps
            )
        case ExecuteImmediate():
            return True  # whatever its text says
        case _:
            return False
