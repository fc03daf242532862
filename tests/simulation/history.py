"""What a run's transactions did and were told, and what the lake's own books say became of them.

Owns the record that auditors judge. Nothing here knows how it came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.statements import Rows, State, Statement
from txlake.conflict.levels import Level


class Told(Enum):
    """What a transaction's client was told at its end."""

    DIED = "died"  # nothing: it was gone
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    REFUSED = "refused"


# What may stand in the books all the same: nobody was told that it doesn't.
OPEN = {Told.DIED, Told.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Step:
    """A statement that answered; `mark` and `back` are savepoints."""

    statement: Statement | None
    answer: object = None
    mark: str | None = None
    back: str | None = None


@dataclass(slots=True)
class Record:
    """One transaction as its client saw it.

    Attributes:
        id: the engine's.
        client: which program of which client.
        steps: what was answered, in order.
        rule: by which a conflict was found; empty without one.
        pins: by table, the version that was read; the lake's instant under `""`.
        makers: by table, who had made the version that was read, by the catalog of that time.
        era: in which era of the catalog the instant was read; None where there is one alone.
        begun: how many turns of the scheduler there were before it began, and before its end.
    """

    id: str
    client: str
    level: Level
    steps: list[Step] = field(default_factory=list)
    told: Told = Told.DIED
    error: str = ""
    rule: str = ""
    pins: dict[str, int] = field(default_factory=dict)
    makers: dict[str, str | None] = field(default_factory=dict)
    era: int | None = None
    begun: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Books:
    """What stands, by the lake's catalog, or by the logs of tables without one.

    Attributes:
        instants: by transaction, its place in the order of all.
        versions: by transaction, the version that it made of each table.
        rows: by table and version, the rows that the published log says.
    """

    instants: Mapping[str, int]
    versions: Mapping[str, Mapping[str, int]]
    rows: Mapping[str, Mapping[int, Rows]]


class Doubt(AssertionError):
    """The engine broke a promise."""


def replayed(steps: Iterable[Step], state: State) -> tuple[State, list[tuple[Step, object]]]:
    """The tables after the statements, and what each would have answered."""
    marks: dict[str, State] = {}
    answers: list[tuple[Step, object]] = []
    for step in steps:
        if step.mark is not None:
            marks[step.mark] = state
        elif step.back is not None:
            state = marks[step.back]
        else:
            assert step.statement is not None
            state, answer = step.statement.on(state)
            answers.append((step, answer))
    return state, answers
