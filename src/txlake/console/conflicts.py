"""The pages of conflicts: how often, by table and operations, and each with its evidence.

Owns the drawing of both transactions' times, and the statement that EXPLAIN CONFLICTS is tried
with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlake.catalog.journal import ConflictEntry
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.errors import Evidence, InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.protocol.actions import CommitInfo
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import ExplainConflicts

PAGE_SIZE = 100
_LEFT, _WIDTH = 150, 640
_STATEMENTS = {
    "DELETE": "DELETE FROM {table} WHERE {predicate}",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE {predicate}",
}
_TEXT_MAX = 4_000
_HEAT_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The number of conflicts, by table and by both operations.

    Attributes:
        pairs: (loser's operation, winner's operation).
        counts: by table and pair.
    """

    tables: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    counts: Mapping[tuple[str, tuple[str, str]], int]

    def step(self, table: str, pair: tuple[str, str]) -> int:
        """Return the step of the colour scale, from 0 for no conflict to 4 for the most."""
        count = self.counts.get((table, pair), 0)
        most = max(self.counts.values(), default=1)
        return 0 if count == 0 else max(1, round(_HEAT_STEPS * count / most))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictTimeline:
    """The times of both transactions, in milliseconds and as positions on a line.

    Attributes:
        begin, begin_ms: of this transaction. Without a known time the position is the line's left
            end, and `begin_ms` None.
        lost, lost_ms: when it lost.
        commit, commit_ms: of the winner; None if unknown.
    """

    begin: float
    lost: float
    commit: float | None
    begin_ms: int | None
    lost_ms: int
    commit_ms: int | None
    left: float = _LEFT
    width: float = _LEFT + _WIDTH + 30


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of EXPLAIN CONFLICTS. `problem`: why there is none."""

    statement: str
    rows: Sequence[tuple[object, ...]] = ()
    problem: str = ""


def list_page(request: PageRequest) -> TemplateValues:
    """Return a page of the conflicts, newest first, and the heat map of all of them.

    `table` and `error` (a class's name) filter the list, not the heat map; `page` counts from 0.
    """
    conflicts = request.engine.catalog.of_lake().journal.conflicts()
    table, error = request.query.get("table", ""), request.query.get("error", "")
    matching = [
        conflict
        for conflict in conflicts
        if (not table or _table(conflict) == table) and (not error or conflict.error == error)
    ]
    page = request.number("page", default=0)
    return {
        "conflicts": matching[page * PAGE_SIZE : (page + 1) * PAGE_SIZE],
        "total": len(matching),
        "page": page,
        "has_older": (page + 1) * PAGE_SIZE < len(matching),
        "heat_map": heat_map(conflicts),
        "table": table,
        "error": error,
        "errors": sorted({conflict.error for conflict in conflicts}),
    }


def conflict_page(request: PageRequest) -> TemplateValues:
    """Return a conflict; with `statement` also what EXPLAIN CONFLICTS says about that statement.

    Raises InvalidRequest if the lake has no such conflict.
    """
    number = request.path["number"]
    conflict = request.engine.catalog.of_lake().journal.conflict(number)
    if conflict is None:
        raise InvalidRequest(f"there is no conflict {number}; the lake keeps the newest thousand")
    evidence = conflict.evidence
    statement = request.query.get("statement", "")
    return {
        "conflict": conflict,
        "evidence": evidence,
        "timeline": _timeline(conflict),
        "winner": _winner(request, evidence),
        "statement": statement or _suggested_statement(request, evidence),
        "explanation": _explain(request, statement) if statement else None,
    }


def heat_map(conflicts: Sequence[ConflictEntry]) -> HeatMap:
    """Return the number of conflicts by table and by both operations.

    Without evidence the table is "" and both operations are `unknown`; with evidence, a loser
    without an operation is `a read`, and a winner without one `a lock`.
    """
    counts: Counter[tuple[str, tuple[str, str]]] = Counter()
    for conflict in conflicts:
        evidence = conflict.evidence
        loser = "unknown" if evidence is None else evidence.operation or "a read"
        winner = "unknown" if evidence is None else evidence.winning_operation or "a lock"
        counts[_table(conflict), (loser, winner)] += 1
    return HeatMap(
        tables=sorted({table for table, _ in counts}),
        pairs=sorted({pair for _, pair in counts}),
        counts=counts,
    )


def _table(conflict: ConflictEntry) -> str:
    return "" if conflict.evidence is None else conflict.evidence.table


def _timeline(conflict: ConflictEntry) -> ConflictTimeline:
    """Return the times of a conflict, in milliseconds and as positions on a line from the first to
    the last of them.

    An unknown begin stands at the line's left end; an unknown commit is None.
    """
    commit = None if conflict.evidence is None else conflict.evidence.winning_timestamp_ms
    times = [time for time in (conflict.begin_ms, commit, conflict.time_ms) if time is not None]
    first, last = min(times), max(times)

    def position(time_ms: int) -> float:
        share = 1.0 if last == first else (time_ms - first) / (last - first)
        return round(_LEFT + share * _WIDTH, 1)

    return ConflictTimeline(
        begin=_LEFT if conflict.begin_ms is None else position(conflict.begin_ms),
        lost=position(conflict.time_ms),
        commit=None if commit is None else position(commit),
        begin_ms=conflict.begin_ms,
        lost_ms=conflict.time_ms,
        commit_ms=commit,
    )


def _winner(request: PageRequest, evidence: Evidence | None) -> Sequence[tuple[str, str]]:
    """Return the operation parameters that the winner's commit records, conditions included.

    Empty without evidence, if no commit won, and if the commit can't be read any more.
    """
    if evidence is None or evidence.winning_version < 0:
        return []
    try:
        info = request.handle(evidence.table).log.commit_info(evidence.winning_version)
    except (TxlakeError, FileNotFoundError):
        return []  # the table is gone, or its log was cleaned up
    return _parameters(info)


def _parameters(info: CommitInfo | None) -> list[tuple[str, str]]:
    """Return the names and values of a commit's operation parameters, without empty ones.

    Values are cut to 4,000 characters. Empty for None.
    """
    parameters = None if info is None else info.values.get("operationParameters")
    if not isinstance(parameters, Mapping):
        return []
    return [
        (str(key), str(value)[:_TEXT_MAX])
        for key, value in parameters.items()
        if value not in (None, "", "[]", [])
    ]


# EXPLAIN CONFLICTS


def _suggested_statement(request: PageRequest, evidence: Evidence | None) -> str:
    """Return a statement to explain: an UPDATE for a lost UPDATE, a DELETE for anything else.

    Its condition is the one of the evidence, `true` without one. "" without evidence, and for a
    table that can't be read.
    """
    if evidence is None:
        return ""
    try:
        names = request.handle(evidence.table).log.latest().schema.names
    except TxlakeError:
        return ""
    form = _STATEMENTS.get(evidence.operation or "", _STATEMENTS["DELETE"])
    column = names[0] if names else "x"
    return form.format(
        table=evidence.table, predicate=evidence.predicate or "true", column=f"`{column}`"
    )


def _explain(request: PageRequest, statement: str) -> Explanation:
    """Return what EXPLAIN CONFLICTS says about a statement, or why it says nothing."""
    try:
        if len(statement) > _TEXT_MAX:
            raise InvalidRequest(f"expected at most {_TEXT_MAX} characters")
        text = f"EXPLAIN CONFLICTS {statement}"
        parsed = parse(text)
        if len(parsed) != 1 or not isinstance(parsed[0], ExplainConflicts):
            raise InvalidRequest("expected one INSERT, UPDATE, DELETE, MERGE or OPTIMIZE")
        result = LakeSession(request.session)._run_sql(text, None, AsRows())
    except TxlakeError as error:
        return Explanation(statement, problem=str(error))
    assert isinstance(result, Rows)
    return Explanation(statement, rows=result.rows)
