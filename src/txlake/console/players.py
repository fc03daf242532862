"""One session of a playground, on a thread of its own: it may wait while the others go on.

Owns the thread and what statements end with. When a session is asked what, and what becomes of it
on a page, is `playground`'s business.
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
from txlake.views.describe import Rows
from txlake.views.results import held

ROWS_MAX = 20
"""Of an answer that are kept."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a statement answered: the first rows, and how many there are."""

    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[object, ...]] = ()
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Why a statement wasn't carried out.

    Attributes:
        error: the class of the error.
        codes: what other systems call it.
        rule: by which rule a conflict was found.
        advice: what to do.
    """

    error: str
    message: str
    codes: tuple[int, ...] = ()
    rule: str = ""
    advice: str = ""


def told(error: TxlakeError) -> Told:
    """What is shown of an error."""
    facts = error.evidence if isinstance(error, Conflict) else None
    return Told(
        error=type(error).__name__,
        message=str(error),
        codes=error.codes,
        rule="" if facts is None else facts.rule,
        advice="" if facts is None else facts.advice,
    )


@dataclass(slots=True, eq=False)
class Asked:
    """A statement, or a script of them, that a session was asked to carry out."""

    text: str
    answer: Answered | None = None
    error: Told | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_done(self) -> bool:
        return self.ended.is_set()


class Player:
    """A session and its thread, which carries out one statement after the other.

    Attributes:
        session: the lake's; what it stands at may be looked at while it is busy.
        number: its number in the lake's views.
        lost: the error that its last statement ended with; None where it was carried out.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.number = session.number()
        self.lost: Told | None = None
        self._asked: Asked | None = None
        self._waiting: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        # A daemon: a process that is told to stop doesn't wait for locks.
        self._thread = threading.Thread(target=self._work, name=f"playground {name}", daemon=True)
        self._thread.start()

    @property
    def asked(self) -> Asked | None:
        """What it is busy with; None where it isn't."""
        asked = self._asked
        return None if asked is None or asked.is_done else asked

    def ask(self, text: str) -> Asked:
        """Begins to carry out a statement. Raises InvalidRequest while another one isn't done."""
        if self.asked is not None:
            raise InvalidRequest(
                f"{self.name} still waits for its last statement to end; COMMIT or ROLLBACK the "
                "transaction that it waits for"
            )
        asked = Asked(text)
        self._asked = asked
        self._waiting.put(asked)
        return asked

    def end(self) -> None:
        """Closes the session, in its own thread, when what it is busy with has ended."""
        self._waiting.put(None)

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread's end; whether it has come."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (asked := self._waiting.get()) is not None:
            self._carry_out(asked)
            self.lost = asked.error
            asked.ended.set()
        try:
            self.session.close()
        except TxlakeError as error:
            _log.warning("%s: its transaction ends when its lease does: %s", self.name, error)

    def _carry_out(self, asked: Asked) -> None:
        try:
            found = LakeSession(self.session)._answered(asked.text, None, AsRows())
            assert isinstance(found, Rows), "there is no Spark that could have made a DataFrame"
            result = held(found, ROWS_MAX)
        except TxlakeError as error:
            self.session.fail(error)
            asked.error = told(error)
        except Exception as error:
            _log.exception("%s: %s", self.name, asked.text)
            self.session.fail(error)
            asked.error = Told(
                error=type(error).__name__, message="txlake failed; the console's log says why"
            )
        else:
            names = tuple(one.name for one in result.columns)
            asked.answer = Answered(columns=names, rows=result.rows, total=result.total)
