"""A statement of a call: the session that runs it, its run, and its end when it is cancelled."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from txlake.commit.fifo_lock import FifoLock
from txlake.conflict.levels import parse_level
from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.server import scripts
from txlake.server.calls import ServedLake
from txlake.server.flight.handles import Handles
from txlake.server.flight.results import Result, result_of
from txlake.server.refusals import READ_STATEMENTS
from txlake.server.tokens import Caller
from txlake.session.killing import kill_session
from txlake.session.session import Session
from txlake.spark.served import Watch
from txlake.sql.markers import Arguments
from txlake.sql.repeated_rows import row_template
from txlake.sql.statements import Begin, Commit, Rollback, Select, Statement

# Of a cancelled statement that has no transaction yet: it is looked at again so soon.
_AGAIN_S = 0.05
_NOBODY = -1
# Rows of one INSERT that bound values make; more are several, in one transaction.
_ROWS_MAX = 5_000
_ENDING = re.compile(r"\s*(?:COMMIT|ROLLBACK|END|ABORT)\b", re.IGNORECASE)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightCall:
    """A call of a client.

    Attributes:
        isolation, database: of transactions and statements that it begins; None for the default.
        session: the handle of the session that its cookie names.
        on_end: calls a function when the call ends, by its answer or because it was cancelled;
            returns False if it has ended already.
        cancel: ends the call.
        set_cookie: lets the client send this handle of a session from now on.
    """

    caller: Caller
    isolation: str | None
    database: str | None
    session: str | None
    on_end: Callable[[Callable[[], None]], bool]
    cancel: Callable[[], object]
    set_cookie: Callable[[str], None]


class Statements:
    """Runs the statements of all calls, so many at once as the server has workers."""

    def __init__(self, served: ServedLake, handles: Handles) -> None:
        self._served = served
        self._handles = handles
        self._workers = FifoLock(served.engine.system, holders=served.limits.workers)

    def prepare(self, call: FlightCall, session: Session) -> None:
        """Give a new session what its client asked for.

        Raises InvalidRequest for an unknown level and database.
        """
        scripts.set_user(session, call.caller)
        session.lock_timeout_ms = self._served.limits.sql_lock_ms
        if call.isolation is not None:
            session.level = parse_level(call.isolation)
        if call.database is not None:
            use_database(session, call.database)

    @contextmanager
    def session_for(self, call: FlightCall, transaction: str | None) -> Iterator[Session]:
        """Yield the session that a statement runs in: the transaction's, the client's, or one for
        this call alone, whose transaction has to be over at its end.

        Raises as `Handles.transaction`, and InvalidRequest for a transaction that is left open.
        """
        if transaction is not None:
            with self._handles.transaction(transaction, call.caller) as session:
                yield session
        elif call.session is not None:
            with self._handles.sessions.acquire(call.session, call.caller) as session:
                yield session
        else:
            session = self._served.sessions.create()
            try:
                self.prepare(call, session)
                yield session
                if session.current is not None:
                    raise InvalidRequest(
                        "the statement leaves its transaction open, which was rolled back: begin "
                        "transactions by the driver (autocommit off), or by a session that it "
                        "keeps (cookies)"
                    )
            finally:
                session.close()

    def run(
        self, call: FlightCall, text: str, args: Arguments | None, transaction: str | None
    ) -> Result:
        """Run a script for a caller, and return its last statement's result.

        A call that is cancelled ends the statement, and rolls its transaction back. Raises ApiError
        and InvalidRequest as `scripts.judged`, and as the statements.
        """
        with self.session_for(call, transaction) as session:
            return self.run_in(call, session, text, args, transaction)

    def run_many(
        self, call: FlightCall, text: str, rows: Sequence[Arguments], transaction: str | None
    ) -> int:
        """Run a statement once for each row of values, all or none, and return how many rows they
        changed.

        An INSERT of one row of VALUES becomes one write of all rows. Raises as `run`, and
        InvalidRequest for a statement that returns rows.
        """
        template = row_template(text, rows[0])
        if template is None:
            runs = [(text, row) for row in rows]
        else:
            runs = [
                template.repeated(rows[first : first + _ROWS_MAX])
                for first in range(0, len(rows), _ROWS_MAX)
            ]
        with (
            self.session_for(call, transaction) as session,
            together(session) if len(runs) > 1 else nullcontext(),
        ):
            return sum(changed_by(self.run_in(call, session, *run, transaction)) for run in runs)

    def run_in(
        self,
        call: FlightCall,
        session: Session,
        text: str,
        args: Arguments | None,
        transaction: str | None,
    ) -> Result:
        """Run a script in a session, as `run` does."""
        limits = self._served.limits
        # What ends a transaction must not wait for those that wait for its locks.
        slot = nullcontext() if _ENDING.match(text) else self.running(call, session)
        with slot as running, scripts.statement_timeout(session, limits) as watch:
            if running is not None:
                running.watch = watch
            statements = scripts.judged(session, call.caller, limits, text, args)
            rows = scripts.run(session, text, args, statements)
        if transaction is not None and session.current is None:
            self._handles.lose_rows(transaction)
        return result_of(rows, transaction, is_query=isinstance(statements[-1], Select))

    @contextmanager
    def running(self, call: FlightCall, session: Session) -> Iterator[Running]:
        """Wait for a worker, in the order of the calls, and end the block's statement if its call
        is cancelled.
        """
        running = Running(session)
        if not call.on_end(running.cancel):
            running.cancel()  # the call has ended already
        try:
            with self._workers.acquired(math.inf):
                running.require()
                yield running
        finally:
            running.ended.set()


class Running:
    """A statement that may be cancelled by another thread.

    Attributes:
        watch: by which its Spark jobs are cancelled, if it has some.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_cancelled = False
        self.watch: Watch | None = None
        self.ended = threading.Event()

    def require(self) -> None:
        """Raise Unavailable if the statement was cancelled before it began."""
        if self._is_cancelled:
            cause = Unavailable("the statement was cancelled")
            self._session.fail(cause)
            raise cause

    def cancel(self) -> None:
        """End the statement, and its transaction, unless it has ended. Returns at once."""
        self._is_cancelled = True
        if not self.ended.is_set():
            threading.Thread(target=self._cancel, name="txlake-cancel", daemon=True).start()

    def _cancel(self) -> None:
        """Kill the transaction that the statement is in, as soon as it has one, until it ends."""
        catalog = self._session.engine.catalog
        while not self.ended.is_set():
            try:
                if catalog.is_lake:
                    kill_session(catalog.of_lake(), _NOBODY, self._session.number())
            except TxlakeError:
                pass  # it has no transaction yet, or any more
            if self.watch is not None:
                try:
                    self.watch.cancel()
                except Exception as error:
                    _logger.warning("a cancelled statement's jobs can't be ended: %s", error)
            self.ended.wait(_AGAIN_S)


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Run the block's statements in one transaction, which ends with it unless one is open."""
    if session.current is not None:
        yield
        return
    session.perform(Begin())
    try:
        yield
        session.perform(Commit())
    except BaseException:
        if session.current is not None:
            session.perform(Rollback())
        raise


def changed_by(result: Result) -> int:
    """Return how many rows a statement changed. Raises InvalidRequest if it returns rows."""
    if result.changed is None:
        raise InvalidRequest(
            "the statement returns rows, and was to be run as an update: run it as a query"
        )
    return result.changed


def use_database(session: Session, name: str) -> None:
    """Make a database a session's current one. Raises InvalidRequest if it isn't there."""
    if session.engine.catalog.database(name) is None:
        raise InvalidRequest(f"there is no database {name!r}")
    session.database = name


def is_reading(statement: Statement) -> bool:
    """Return whether a statement that isn't a query returns rows, and changes nothing."""
    kind = type(statement)
    return kind in READ_STATEMENTS and kind.__name__.startswith(("Show", "Describe", "Explain"))
