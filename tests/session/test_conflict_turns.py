"""After a conflict, transactions that begin alike run one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.session.branch_lake import Lake
from txlake.commands import HANDLERS
from txlake.conflict.locking import LockStatus
from txlake.errors import Conflict, Deadlock, Evidence
from txlake.session import admission
from txlake.session.conflict_turns import NO_TURNS, ConflictTurns
from txlake.session.session import Session
from txlake.sql import parse
from txlake.sql.statements import Statement

FIRST, SECOND = "UPDATE t SET v = v + 1 WHERE id = 1", "UPDATE u SET v = v + 1 WHERE id = 1"


def begun(lake: Lake, session: Session, first: str = FIRST) -> None:
    lake.do(f"BEGIN; {first}; {SECOND}", session)


def sessions(lake: Lake, count: int) -> list[Session]:
    return [Session(lake.engine, HANDLERS) for _ in range(count)]


def lost(lake: Lake, *losers: Session, first: str = FIRST) -> None:
    """Each of the sessions loses a transaction to the lake's own session."""
    for each in (*losers, lake.session):
        begun(lake, each, first)
    lake.do("COMMIT", lake.session)
    for each in losers:
        with pytest.raises(Conflict):
            lake.do("COMMIT", each)


def turns(lake: Lake) -> list[tuple[int, str, LockStatus]]:
    """(session, what, status) of the turns that are held or waited for."""
    return [
        (one.session_id, one.resource.description, one.status)
        for one in lake.catalog.locks.entries()
        if one.resource.description.startswith("retry ")
    ]


@contextmanager
def elsewhere(work: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Run work in another thread; what is yielded waits for its end, and raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def end() -> None:
        thread.join(60)
        assert not thread.is_alive()
        if errors:
            raise errors[0]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield end
    finally:
        thread.join(60)


def test_who_lost_alike_waits_for_the_other_and_both_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TURN_WAIT_MS_MAX", 60_000)
    one, other = sessions(lake, 2)
    lost(lake, one, other)
    before = lake.rows("SELECT v FROM t WHERE id = 1")[0][0]
    begun(lake, one)
    [(_, _, status)] = turns(lake)
    assert status is LockStatus.GRANT

    def second() -> None:
        begun(lake, other)
        lake.do("COMMIT", other)

    with elsewhere(second) as end:
        while len(turns(lake)) < 2:
            pass
        assert [status for _, _, status in turns(lake)] == [LockStatus.GRANT, LockStatus.WAIT]
        lake.do("COMMIT", one)
        end()
    assert turns(lake) == []
    assert lake.rows("SELECT v FROM t WHERE id = 1") == [(cast(int, before) + 2,)]


def test_who_has_not_lost_waits_for_nobody(lake: Lake) -> None:
    one, other = sessions(lake, 2)
    lost(lake, one)
    begun(lake, one)
    begun(lake, other)
    assert len(turns(lake)) == 1
    lake.do("COMMIT", other)
    with pytest.raises(Conflict):
        lake.do("COMMIT", one)


@pytest.mark.parametrize(
    "begin",
    [
        "BEGIN; UPDATE t SET v = v + 1 WHERE id = 2",
        "BEGIN; SELECT v FROM t WHERE id = 1",
        "BEGIN READ ONLY; SELECT v FROM t WHERE id = 1",
        FIRST,
    ],
)
def test_what_begins_otherwise_takes_no_turn(lake: Lake, begin: str) -> None:
    one, other = sessions(lake, 2)
    lost(lake, one, other)
    begun(lake, other)
    taken = turns(lake)
    assert len(taken) == 1
    for statement in begin.split("; "):
        if statement.startswith("SELECT"):
            lake.rows(statement, one)
        else:
            lake.do(statement, one)
    assert turns(lake) == taken


def test_rows_of_another_condition_have_another_turn(lake: Lake) -> None:
    one, other = sessions(lake, 2)
    second = FIRST.replace("id = 1", "id = 2")
    lost(lake, one)
    lost(lake, other, first=second)
    begun(lake, one)
    begun(lake, other, second)
    found = turns(lake)
    assert [status for _, _, status in found] == [LockStatus.GRANT, LockStatus.GRANT]
    assert len({what for _, what, _ in found}) == 2


def test_a_turn_is_not_waited_for_long(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may be a user who thinks; the next transaction doesn't ask any more."""
    monkeypatch.setattr(admission, "TURN_WAIT_MS_MAX", 20)
    idle, other = sessions(lake, 2)
    lost(lake, idle, other)
    begun(lake, idle)
    for _ in range(2):
        begun(lake, other)
        assert len(turns(lake)) == 1
        lake.do("COMMIT", other)
        monkeypatch.setattr(admission, "TURN_WAIT_MS_MAX", 600_000)
    with pytest.raises(Conflict):
        lake.do("COMMIT", idle)


def test_who_waits_for_no_lock_waits_for_no_turn(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TURN_WAIT_MS_MAX", 600_000)
    one, other = sessions(lake, 2)
    other.lock_timeout_ms = 0
    lost(lake, one, other)
    begun(lake, one)
    begun(lake, other)
    lake.do("COMMIT", other)
    with pytest.raises(Conflict):
        lake.do("COMMIT", one)


def test_a_table_lock_is_waited_for_as_long_as_the_session_says(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TURN_WAIT_MS_MAX", 20)
    one, other = sessions(lake, 2)
    lost(lake, one)
    lake.do("BEGIN; ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')", other)

    def retry() -> None:
        begun(lake, one)
        lake.do("COMMIT", one)

    with elsewhere(retry) as end:
        while one._conflict_turns._contested:  # until that wait is over
            pass
        while not any(lock.status is LockStatus.WAIT for lock in lake.catalog.locks.entries()):
            pass
        lake.do("COMMIT", other)
        end()


# The turns themselves, without a lake


@dataclass
class Entry:
    database_number: int = 1
    number: int = 7


@dataclass
class Table:
    name: str
    entry: Entry | None = field(default_factory=Entry)


@dataclass
class Begun:
    explicit: bool = True
    read_only: bool = False
    first_statement: Statement | None = None
    sequence: int | None = None
    tables: Any = ((Table("default.t"), None), (Table("default.u", Entry(1, 6)), None))


def statement(text: str = FIRST) -> Statement:
    [made] = parse(text)
    return made


def conflict(table: str = "default.t", **facts: Any) -> Conflict:
    known: dict[str, Any] = {"read_version": 1, "winning_version": 2, "predicate": "id = 1"}
    return Conflict("lost", Evidence(table=table, **{**known, **facts}))


def noted(*conflicts: Conflict) -> ConflictTurns:
    """The turns of a session whose transaction met them."""
    made, transaction = ConflictTurns(), Begun()
    assert made.begin(transaction, statement()) is NO_TURNS
    for each in conflicts:
        made.note_conflict(transaction, each)
    return made


def taken(found: ConflictTurns, transaction: Begun | None = None) -> list[tuple[int, str]]:
    locks = found.begin(transaction or Begun(), statement()).locks
    return [(lock.resource.entity, lock.resource.description) for lock in locks]


def test_equal_statements_have_the_same_turn_in_each_session() -> None:
    assert taken(noted(conflict())) == taken(noted(conflict()))
    assert taken(noted(conflict())) != taken(noted(conflict(predicate="id = 2")))


def test_statements_that_differ_in_a_list_alone_have_turns_of_their_own() -> None:
    texts = [f"UPDATE t SET v = {value} WHERE id = 1" for value in (1, 2)]
    made = ConflictTurns()
    for text in texts:
        transaction = Begun()
        made.begin(transaction, statement(text))
        made.note_conflict(transaction, conflict())
    [one], [other] = (made.begin(Begun(), statement(text)).locks for text in texts)
    assert one != other


def test_a_conflict_before_the_first_statement_is_not_noted() -> None:
    made = ConflictTurns()
    made.note_conflict(Begun(), conflict())
    assert made._contested == {}


def test_several_turns_have_one_order() -> None:
    met = (conflict("default.t"), conflict("default.u"), conflict("default.t", predicate=None))
    found = taken(noted(*met))
    assert found == sorted(found)
    assert len(found) == 3
    assert found == taken(noted(*reversed(met)))


@pytest.mark.parametrize(
    "ended",
    [
        conflict("default.elsewhere"),
        conflict(retry=False),
        conflict(winning_version=-1),
        Deadlock("a deadlock", None),
    ],
)
def test_what_a_retry_cannot_help_or_a_commit_did_not_cause_has_no_turn(ended: Conflict) -> None:
    assert taken(noted(ended)) == []


def test_a_path_table_has_no_turn() -> None:
    made, transaction = ConflictTurns(), Begun(tables=((Table("default.t", None), None),))
    made.begin(transaction, statement())
    made.note_conflict(transaction, conflict())
    assert taken(made) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"explicit": False},
        {"read_only": True},
        {"sequence": 3},
        {"first_statement": statement()},
    ],
)
def test_only_the_first_statement_of_a_transaction_that_may_write(facts: dict[str, Any]) -> None:
    made = noted(conflict())
    assert taken(made, Begun(**facts)) == []
    assert made.begin(None, statement()) is NO_TURNS
    assert len(taken(made)) == 1


def test_turns_are_taken_for_a_while() -> None:
    made = noted(conflict())
    assert [len(taken(made)) for _ in range(17)] == [1] * 16 + [0]
    made = noted(conflict())
    made.begin(Begun(), statement()).give_up()
    assert taken(made) == []


def test_few_conflicts_are_remembered() -> None:
    made = ConflictTurns()
    texts = [f"DELETE FROM t WHERE id = {number}" for number in range(9)]
    for text in texts:
        transaction = Begun()
        made.begin(transaction, statement(text))
        made.note_conflict(transaction, conflict())
    found = [len(made.begin(Begun(), statement(text)).locks) for text in texts]
    assert found == [0] + [1] * 8
    many = noted(*(conflict(predicate=f"id = {number}") for number in range(5)))
    assert len(taken(many)) == 1


def test_a_statement_with_a_frame_is_known_by_the_rest_of_it() -> None:
    """A DataFrame isn't looked at: its text may cost a query."""

    class Frame:
        def __repr__(self) -> str:
            raise AssertionError("that runs a query")

    insert = statement("INSERT INTO t SELECT 1, 1")
    changed = cast(Any, insert)
    object.__setattr__(changed, "source", Frame())
    made, transaction = ConflictTurns(), Begun()
    made.begin(transaction, insert)
    made.note_conflict(transaction, conflict())
    assert len(made.begin(Begun(), insert).locks) == 1
