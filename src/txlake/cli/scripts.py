"""A script: runs its statements in order, and repeats a transaction that a conflict ended.

Owns what is repeated. Nothing that was committed is repeated: an autocommit statement is repeated
alone, a transaction from its BEGIN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txlake.cli.output import Output
from txlake.cli.worker import Worker
from txlake.conflict.evidence import is_futile
from txlake.errors import Conflict, InvalidRequest
from txlake.ports import System
from txlake.session.views.results import Result
from txlake.settings import RetrySettings
from txlake.sql import ScriptStatement
from txlake.sql.statements import Atomic, CreateTemporaryView, ExecuteImmediate, SparkCommand
from txlake.sql.statements.scripting import DeclareVariable, SetVariables, steps_of


@dataclass(frozen=True, slots=True)
class _StatementResult:
    piece: ScriptStatement
    result: Result
    elapsed_ms: float


@dataclass(kw_only=True)
class ScriptRunner:
    """A runner of statements on a worker, which shows their results.

    Attributes:
        retries: how often each transaction, or autocommit statement, is repeated after a conflict.
        current: the statement that is running, or ran last.
    """

    worker: Worker
    output: Output
    system: System
    retries: int = 0
    waits: RetrySettings = field(default_factory=RetrySettings)
    current: ScriptStatement | None = None
    _pending_results: list[_StatementResult] = field(default_factory=list)

    def run_script(self, pieces: Sequence[ScriptStatement]) -> None:
        """Run a whole script. A transaction that is open at its end is rolled back.

        Raises what a statement raised, and InvalidRequest for a script that ends in a transaction.
        """
        try:
            self.run(pieces)
            if self.worker.state().transaction is not None:
                raise InvalidRequest(
                    "the script ends inside a transaction, which is rolled back; end it with "
                    "COMMIT or ROLLBACK"
                )
        except BaseException:
            if self.worker.rollback():
                self.output.note("the open transaction was rolled back: nothing of it is kept")
            raise

    def run(self, pieces: Sequence[ScriptStatement]) -> None:
        """Run statements, and show their results; a transaction that they leave open stays open.

        After a conflict the transaction, or the autocommit statement, is repeated up to `retries`
        times, unless it was open before, or a repetition is futile. Results in a transaction that
        may be repeated are shown once it has ended. Raises what a statement raised.
        """
        before = self.worker.state()
        opened_before = before.transaction is not None
        retry_from = index = losses = 0  # `retry_from`: the first statement to repeat
        try:
            while index < len(pieces):
                try:
                    self._run(pieces[index])
                except Conflict as conflict:
                    repeated = pieces[retry_from : index + 1]
                    is_last = losses == self.retries or opened_before or is_futile(conflict)
                    if is_last or self._is_unrepeatable(repeated):
                        raise
                    losses += 1
                    self._pending_results.clear()
                    self.worker.rollback()
                    self.worker.use(before.database)
                    self._wait(conflict, losses, repeated[0])
                    index = retry_from
                    continue
                index += 1
                state = self.worker.state()
                if state.transaction is None:
                    before, opened_before, retry_from, losses = state, False, index, 0
                if state.transaction is None or not self.retries:
                    self._show_results()
        finally:
            self._show_results()

    def _run(self, piece: ScriptStatement) -> None:
        """Run a statement, and keep its result to be shown."""
        self.current = piece
        start_ms = self.system.monotonic_ms()
        result = self.worker.run(piece.text, self.output.rows_max)
        self._pending_results.append(
            _StatementResult(piece, result, self.system.monotonic_ms() - start_ms)
        )

    def _show_results(self) -> None:
        """Show the kept results, in order, and drop them."""
        for pending in self._pending_results:
            self.output.answer(pending.result, pending.piece, pending.elapsed_ms)
        self._pending_results.clear()

    def _is_unrepeatable(self, pieces: Sequence[ScriptStatement]) -> bool:
        """Return whether a second run would find a changed Spark session, after a note that says
        so.
        """
        for piece in pieces:
            if _changes_spark(piece.statement):
                self.output.note(
                    f"not run again: line {piece.line} changed Spark's session, which a second run "
                    "would find changed; such statements belong before BEGIN"
                )
                return True
        return False

    def _wait(self, conflict: Conflict, losses: int, first: ScriptStatement) -> None:
        """Note that statements run again, and wait: twice as long after each loss, up to a
        limit.
        """
        self.output.note(
            f"{type(conflict).__name__}: run again from line {first.line} "
            f"({losses} of {self.retries})"
        )
        wait_ms = min(self.waits.wait_ms_max, self.waits.wait_ms_min * 2**losses)
        self.system.wait_ms(wait_ms * (0.5 + self.system.random() / 2))


def _changes_spark(statement: object) -> bool:
    """Return whether a statement may change Spark's session: settings, variables, temporary
    views.
    """
    match statement:
        case SparkCommand(command):
            return not command.text.lstrip().upper().startswith("EXPLAIN")
        case CreateTemporaryView():
            return True
        case Atomic():
            steps = list(steps_of((*statement.statements, *statement.handlers)))
            declared = {
                name.lower()
                for step in steps
                if isinstance(step, DeclareVariable)
                for name in step.names
            }
            return any(
                any(name.lower() not in declared for name in step.names)
                if isinstance(step, SetVariables)
                else _changes_spark(step)
                for step in steps
            )
        case ExecuteImmediate():
            return True  # its text is unknown here
        case _:
            return False
