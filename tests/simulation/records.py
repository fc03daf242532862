"""The records of a run's transactions, and the committed state that they are checked against.

Owns these values and the exception for a broken promise; `clients` and `committed_state` make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.statements import Rows, State, Statement
from txlake.conflict.levels import Level


class ReportedOutcome(Enum):
    """What a transaction's client was told at its end."""

    DIED = "died"  # the client died before
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    REFUSED = "refused"


# Outcomes whose transaction may be committed: the client wasn't told that it isn't.
UNREPORTED = {ReportedOutcome.DIED, ReportedOutcome.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Step:
    """A statement that was executed, with its result; or a savepoint set or rolled back to."""

    statement: Statement | None
    result: object = None
    savepoint: str | None = None
    rolled_back_to: str | None = None


@dataclass(slots=True)
class Record:
    """One transaction as its client saw it.

    Attributes:
        id: the engine's id of the transaction.
        client: client, program and attempt, with the program's name: `c0.1.0 transfer`.
        steps: the statements that returned, in order.
        rule: the rule that found a conflict; empty without a conflict.
        read_versions: the version read of each table; the lake's instant under `""`.
        read_transactions: by table, the transaction that had made the version that was read, by the
            catalog of that time.
        epoch_index: the catalog's epoch of the instant; None if the epoch changed during the read.
        begin_turn, end_turn: the scheduler's number of turns at the begin and at the end.
        is_autocommitted: its one statement ran outside BEGIN.
        line: the id of the branch that it works on; empty for main. On a branch `read_versions` has
            the catalog's ids of the branch's tables in place of names.
    """

    id: str
    client: str
    level: Level
    steps: list[Step] = field(default_factory=list)
    outcome: ReportedOutcome = ReportedOutcome.DIED
    error: str = ""
    rule: str = ""
    read_versions: dict[str, int] = field(default_factory=dict)
    read_transactions: dict[str, str | None] = field(default_factory=dict)
    epoch_index: int | None = None
    begin_turn: int = 0
    end_turn: int = 0
    is_autocommitted: bool = False
    line: str = ""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What is committed, by the lake's catalog, or by the logs of tables without one.

    Attributes:
        instants: by transaction, its place in the order of all.
        versions: by transaction, the version that it made of each table.
        rows: by table and version, the rows by the published log.
    """

    instants: Mapping[str, int]
    versions: Mapping[str, Mapping[str, int]]
    rows: Mapping[str, Mapping[int, Rows]]


class Violation(AssertionError):
    """The engine broke a promise."""


def apply_steps(steps: Iterable[Step], state: State) -> tuple[State, list[tuple[Step, object]]]:
    """Return the tables' rows after a transaction's steps, and the result of each statement."""
    marks: dict[str, State] = {}
    answers: list[tuple[Step, object]] = []
    for step in steps:
        if step.savepoint is not None:
            marks[step.savepoint] = state
        elif step.rolled_back_to is not None:
            state = marks[step.rolled_back_to]
        else:
            assert step.statement is not None
            state, answer = step.statement.apply(state)
            answers.append((step, answer))
    return state, answers
