"""A session that is scripted: what each statement answers or raises, and what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from txlake.cli.worker import SessionState
from txlake.errors import TxlakeError
from txlake.session.views.results import Column, Result

NOTHING = Result(columns=(), rows=(), total=0)
Answer = Result | BaseException


def rows(*values: object, name: str = "v", kind: str = "int", total: int | None = None) -> Result:
    """One column of values."""
    return Result(
        columns=(Column(name, kind),),
        rows=[(value,) for value in values],
        total=len(values) if total is None else total,
    )


@dataclass
class FakeWorker:
    """Keeps a transaction as a session does; answers are taken in turn, the last one stays.

    Attributes:
        answers: by statement, in capitals.
        ran: every statement that was run, with "ROLLBACK!" for a call of `rollback`.
    """

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    now: SessionState = field(
        default_factory=lambda: SessionState(database="default", isolation="write_serializable")
    )
    misread_errors: list[TxlakeError] = field(default_factory=list)
    tables: Sequence[str] = ()
    known_branches: Sequence[str] = ()

    def run(self, text: str, rows_max: int | None) -> Result:
        self.ran.append(text)
        word = text.upper()
        answers = self.answers.get(word, [NOTHING])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if word == "COMMIT" or word == "ROLLBACK":
            self.now = replace(self.now, transaction=None, failed=False)
        if isinstance(answer, BaseException):
            if self.now.transaction is not None:
                self.now = replace(self.now, failed=True)
            raise answer
        if word.startswith("BEGIN") and not word.startswith("BEGIN ATOMIC"):
            self.now = replace(self.now, transaction="1", read_only="READ ONLY" in word)
        if word.startswith("USE "):
            self.now = replace(self.now, database=text.split()[1])
        return answer

    def parse_failed(self, error: TxlakeError) -> None:
        self.misread_errors.append(error)
        if self.now.transaction is not None:
            self.now = replace(self.now, failed=True)

    def state(self) -> SessionState:
        return self.now

    def use(self, database: str) -> None:
        self.now = replace(self.now, database=database)

    def rollback(self) -> bool:
        was_open = self.now.transaction is not None
        if was_open:
            self.ran.append("ROLLBACK!")
        self.now = replace(self.now, transaction=None, failed=False)
        return was_open

    def names(self) -> Sequence[str]:
        return self.tables

    def branches(self) -> Sequence[str]:
        return self.known_branches


@dataclass
class FakeSystem:
    """A clock that stands still, and no chance; waits are noted."""

    waits: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return 0

    def new_id(self) -> str:
        return "id"

    def random(self) -> float:
        return 0.5

    def wait_ms(self, duration_ms: float) -> None:
        self.waits.append(duration_ms)

    def monotonic_ms(self) -> float:
        return 0.0
