"""A playground's session on a thread of its own: it may wait while the others continue.

Owns the thread and the statements' results. `playground` owns what is submitted to which session,
and `playground_pages` how it is shown.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.session.views.results import rows_result

ROWS_MAX = 20
"""Rows of a result that are kept."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementResult:
    """A statement's result: its first rows, and the number of all."""

    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[object, ...]] = ()
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementError:
    """Why a statement failed.

    Attributes:
        error: the class of the error.
        codes: other systems' codes for it.
        rule: the rule by which a conflict was found.
        advice: what to do.
    """

    error: str
    message: str
    codes: tuple[int, ...] = ()
    rule: str = ""
    advice: str = ""


def statement_error(error: TxlakeError) -> StatementError:
    """Return the shown facts of an error."""
    facts = error.evidence if isinstance(error, Conflict) else None
    return StatementError(
        error=type(error).__name__,
        message=str(error),
        codes=error.codes,
        rule="" if facts is None else facts.rule,
        advice="" if facts is None else facts.advice,
    )


@dataclass(slots=True, eq=False)
class SubmittedStatement:
    """A statement or script that was submitted to a session, with its result or error."""

    text: str
    result: StatementResult | None = None
    error: StatementError | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def is_done(self) -> bool:
        return self.finished.is_set()


class SessionThread:
    """A session and its thread, which executes one statement after the other.

    Attributes:
        session: the lake's session; its state may be read while it is busy.
        number: its number in the lake's views.
        last_error: the error of its last statement; None if that succeeded.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.number = session.number()
        self.last_error: StatementError | None = None
        self._statement: SubmittedStatement | None = None
        self._queue: queue.SimpleQueue[SubmittedStatement | None] = queue.SimpleQueue()
        # A daemon: a process that is stopped doesn't wait for locks.
        self._thread = threading.Thread(target=self._run, name=f"playground {name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> SubmittedStatement | None:
        """Return the statement that is being executed; None if the session is idle."""
        statement = self._statement
        return None if statement is None or statement.is_done else statement

    def submit(self, text: str) -> SubmittedStatement:
        """Start executing a statement. Raises InvalidRequest while another one is running."""
        if self.running is not None:
            raise InvalidRequest(
                f"{self.name} still waits for its last statement to end; COMMIT or ROLLBACK the "
                "transaction that it waits for"
            )
        statement = SubmittedStatement(text)
        self._statement = statement
        self._queue.put(statement)
        return statement

    def stop(self) -> None:
        """Close the session, in its own thread, once the running statement has finished."""
        self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end. Returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Execute the submitted statements one by one until `stop`, then close the session."""
        while (statement := self._queue.get()) is not None:
            self._execute(statement)
            self.last_error = statement.error
            statement.finished.set()
        try:
            self.session.close()
        except TxlakeError as error:
            _log.warning("%s: its transaction ends when its lease does: %s", self.name, error)

    def _execute(self, statement: SubmittedStatement) -> None:
        """Execute a statement, and set its result or error; an error fails the transaction."""
        try:
            rows = LakeSession(self.session)._run_sql(statement.text, None, AsRows())
            assert isinstance(rows, Rows), "there is no Spark that could have made a DataFrame"
            result = rows_result(rows, ROWS_MAX)
        except TxlakeError as error:
            self.session.fail(error)
            statement.error = statement_error(error)
        except Exception as error:
            _log.exception("%s: %s", self.name, statement.text)
            self.session.fail(error)
            statement.error = StatementError(
                error=type(error).__name__, message="txlake failed; the console's log says why"
            )
        else:
            names = tuple(column.name for column in result.columns)
            statement.result = StatementResult(columns=names, rows=result.rows, total=result.total)
