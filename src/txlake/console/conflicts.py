"""The conflicts that there were: how often by table and operations, and each with its evidence.

Owns the drawing of the two transactions' times, and the statement that EXPLAIN CONFLICTS is tried
with; the journal and the rules say the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlake.catalog.journal import ConflictEntry
from txlake.console.visits import Values, Visit
from txlake.errors import Evidence, InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.protocol.actions import CommitInfo
from txlake.session.command import AsRows
from txlake.sql import parse
from txlake.statements import ExplainConflicts
from txlake.views.describe import Rows

PAGE = 100
_LEFT, _WIDTH = 150, 640
_STATEMENTS = {
    "DELETE": "DELETE FROM {table} WHERE {predicate}",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE {predicate}",
}
_TEXT_MAX = 4_000
_HEAT_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """How often transactions lost, by table and by what lost to what.

    Attributes:
        pairs: (loser's operation, winner's operation).
        counts: by table and pair.
    """

    tables: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    counts: Mapping[tuple[str, tuple[str, str]], int]

    def step(self, table: str, pair: tuple[str, str]) -> int:
        """How hot it is, from 0 to 4."""
        count = self.counts.get((table, pair), 0)
        most = max(self.counts.values(), default=1)
        return 0 if count == 0 else max(1, round(_HEAT_STEPS * count / most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When the two were at work, as places on a line; None for what isn't known.

    Attributes:
        began, lost: of this transaction.
        won: when the winner committed.
    """

    began: float
    lost: float
    won: float | None
    began_ms: int | None
    lost_ms: int
    won_ms: int | None
    left: float = _LEFT
    width: float = _LEFT + _WIDTH + 30


@dataclass(frozen=True, slots=True)
class ExplainableStatement:
    """What EXPLAIN CONFLICTS answered. `problem`: why it didn't."""

    statement: str
    rows: Sequence[tuple[object, ...]] = ()
    problem: str = ""


def look(visit: Visit) -> Values:
    """The list and the heat map; `table` and `error` choose some."""
    found = visit.engine.catalog.of_lake().journal.conflicts()
    table, error = visit.query.get("table", ""), visit.query.get("error", "")
    chosen = [
        one
        for one in found
        if (not table or _table(one) == table) and (not error or one.error == error)
    ]
    page = visit.number("page", otherwise=0)
    return {
        "conflicts": chosen[page * PAGE : (page + 1) * PAGE],
        "total": len(chosen),
        "page": page,
        "has_older": (page + 1) * PAGE < len(chosen),
        "heat": heat(found),
        "table": table,
        "error": error,
        "errors": sorted({one.error for one in found}),
    }


def one(visit: Visit) -> Values:
    """A conflict's page; with `statement` also what EXPLAIN CONFLICTS says of that."""
    number = visit.path["number"]
    found = visit.engine.catalog.of_lake().journal.conflict(number)
    if found is None:
        raise InvalidRequest(f"there is no conflict {number}; the lake keeps the newest thousand")
    facts = found.evidence
    statement = visit.query.get("statement", "")
    return {
        "conflict": found,
        "facts": facts,
        "timeline": _timeline(found),
        "winner": _winner(visit, facts),
        "statement": statement or _statement(visit, facts),
        "explained": _explained(visit, statement) if statement else None,
    }


def heat(found: Sequence[ConflictEntry]) -> Heat:
    """The heat map."""
    counts: Counter[tuple[str, tuple[str, str]]] = Counter()
    for one in found:
        facts = one.evidence
        loser = "unknown" if facts is None else facts.operation or "a read"
        winner = "unknown" if facts is None else facts.winning_operation or "a lock"
        counts[_table(one), (loser, winner)] += 1
    return Heat(
        tables=sorted({table for table, _ in counts}),
        pairs=sorted({pair for _, pair in counts}),
        counts=counts,
    )


def _table(one: ConflictEntry) -> str:
    return "" if one.evidence is None else one.evidence.table


def _timeline(one: ConflictEntry) -> Timeline:
    won = None if one.evidence is None else one.evidence.winning_timestamp_ms
    times = [time for time in (one.begin_ms, won, one.time_ms) if time is not None]
    first, last = min(times), max(times)

    def place(time_ms: int) -> float:
        share = 1.0 if last == first else (time_ms - first) / (last - first)
        return round(_LEFT + share * _WIDTH, 1)

    return Timeline(
        began=_LEFT if one.begin_ms is None else place(one.begin_ms),
        lost=place(one.time_ms),
        won=None if won is None else place(won),
        began_ms=one.begin_ms,
        lost_ms=one.time_ms,
        won_ms=won,
    )


def _winner(visit: Visit, facts: Evidence | None) -> Sequence[tuple[str, str]]:
    """What the winner's commit says that it did, its condition among it."""
    if facts is None or facts.winning_version < 0:
        return []
    try:
        info = visit.handle(facts.table).log.commit_info(facts.winning_version)
    except (TxlakeError, FileNotFoundError):
        return []  # the table is gone, or its log was cleaned up
    return _parameters(info)


def _parameters(info: CommitInfo | None) -> list[tuple[str, str]]:
    found = None if info is None else info.values.get("operationParameters")
    if not isinstance(found, Mapping):
        return []
    return [
        (str(key), str(value)[:_TEXT_MAX])
        for key, value in found.items()
        if value not in (None, "", "[]", [])
    ]


# EXPLAIN CONFLICTS


def _statement(visit: Visit, facts: Evidence | None) -> str:
    """A statement like the one that lost, to be tried; "" where none can be guessed."""
    if facts is None:
        return ""
    try:
        names = visit.handle(facts.table).log.latest().schema.names
    except TxlakeError:
        return ""
    form = _STATEMENTS.get(facts.operation or "", _STATEMENTS["DELETE"])
    column = names[0] if names else "x"
    return form.format(table=facts.table, predicate=facts.predicate or "true", column=f"`{column}`")


def _explained(visit: Visit, statement: str) -> ExplainableStatement:
    try:
        if len(statement) > _TEXT_MAX:
            raise InvalidRequest(f"expected at most {_TEXT_MAX} characters")
        text = f"EXPLAIN CONFLICTS {statement}"
        parsed = parse(text)
        if len(parsed) != 1 or not isinstance(parsed[0], ExplainConflicts):
            raise InvalidRequest("expected one INSERT, UPDATE, DELETE, MERGE or OPTIMIZE")
        found = LakeSession(visit.session)._answered(text, None, AsRows())
    except TxlakeError as error:
        return ExplainableStatement(statement, problem=str(error))
    assert isinstance(found, Rows)
    return ExplainableStatement(statement, rows=found.rows)
