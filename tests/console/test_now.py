"""What is open now, who waits for whom, and KILL."""

from __future__ import annotations

import threading

import pytest

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from txlake.catalog import Catalog
from txlake.console.now import LockRow, graph
from txlake.errors import TxlakeError
from txlake.ports import HeadsMoved, Ratification

DEADLINE_S = 30


def _catalog(lake: PlainLake) -> Catalog:
    return lake.engine.catalog.of_lake()


def test_open_transactions_say_what_they_read_and_write(lake: PlainLake, browser: Browser) -> None:
    assert "No session waits" in browser.page("/")
    session = lake.another()
    lake.sql("BEGIN; SELECT * FROM stock; UPDATE orders SET pieces = 0 WHERE id = 1", session)
    text = browser.page("/now")
    (row,) = [line for line in text.split("<tr") if "default.orders" in line and "instant" in line]
    cells = [cell.split("</td>")[0] for cell in row.split("<td>")[1:]]
    assert cells[3] == ""
    assert "default.stock" in cells[5]
    assert "default.orders" in cells[6]
    lake.sql("ROLLBACK", session)
    assert "default.orders" not in browser.page("/now")


def test_attempts_to_commit_that_lost_are_counted(lake: PlainLake, browser: Browser) -> None:
    session = lake.another()
    lake.sql("BEGIN; UPDATE orders SET pieces = 0 WHERE id = 1", session)
    catalog = _catalog(lake)
    (mine,) = [one for one in catalog.transactions.entries() if one.explicit]
    table = catalog.find("default", "orders")
    assert table is not None
    for lost in (1, 2):
        request = Ratification(transaction_id=mine.id, commits=(), unchanged={table.id: 10**6})
        assert isinstance(catalog.ledger.ratify(request), HeadsMoved)
        assert lake.sql("SELECT lost_attempts FROM txlake.transactions") == [(lost,)]
    assert "</td><td>2</td>" in browser.page("/now")
    lake.sql("ROLLBACK", session)


def _waiting(lake: PlainLake) -> tuple[threading.Thread, list[object], int, int]:
    """A session that waits for another one's lock; its thread, its answers, both numbers."""
    holder, waiter = lake.another(), lake.another()
    lake.sql("BEGIN; UPDATE orders SET pieces = 0 WHERE id = 1", holder)
    waiter.lock_timeout_ms = 1000 * DEADLINE_S
    answers: list[object] = []

    def wait() -> None:
        try:
            answers.append(lake.sql("ALTER TABLE orders ADD COLUMN more INT", waiter))
        except TxlakeError as error:
            answers.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting = threading.Event()
    for _ in range(100 * DEADLINE_S):
        if any(one.status.value == "WAIT" for one in _catalog(lake).locks.entries()):
            break
        waiting.wait(0.01)
    return thread, answers, holder.number(), waiter.number()


def test_who_waits_is_shown_behind_the_head_blocker(lake: PlainLake, writer: Browser) -> None:
    thread, answers, holder, waiter = _waiting(lake)
    text = writer.page("/now")
    assert f"session {waiter} waits for session {holder}, the head blocker: default.orders" in text
    assert f"waits for default.orders, of session {holder}" in text
    assert "<svg" in text
    assert f'href="/kill?session={holder}"' in text
    asked = writer.page(f"/kill?session={holder}")
    assert "may have changed default.orders" in asked
    assert not answers  # asking has killed nobody
    done = writer.send("/kill", {"session": str(holder)}, page=f"/kill?session={holder}")
    assert done.status_code == 200
    thread.join(DEADLINE_S)
    assert answers == [[]]
    assert "No session waits" in writer.page("/now")


def test_a_session_without_anything_open_is_not_killed(lake: PlainLake, writer: Browser) -> None:
    number = lake.another().number()
    assert writer.get(f"/kill?session={number}").status_code == 404
    answer = writer.send("/kill", {"session": str(number)}, page="/")
    assert answer.status_code == 400
    assert "no open transaction" in answer.text


@pytest.mark.parametrize("number", ["", "-1", "x", "9" * 30, "1 OR 1"])
def test_a_session_is_a_number(writer: Browser, number: str) -> None:
    answer = writer.send("/kill", {"session": number}, page="/")
    assert answer.status_code == 400
    assert "expected a number" in answer.text


def test_a_resolved_deadlock_is_told(lake: PlainLake, browser: Browser) -> None:
    first, second = lake.another(), lake.another()
    for session in (first, second):
        session.lock_timeout_ms = 1000 * DEADLINE_S
    lake.sql("BEGIN; UPDATE orders SET pieces = 0 WHERE id = 1", first)
    lake.sql("BEGIN; INSERT INTO stock VALUES ('nail', 1)", second)
    failed: list[str] = []

    def alter(session: object, table: str) -> None:
        try:
            lake.sql(f"ALTER TABLE {table} ADD COLUMN more INT", session)  # type: ignore[arg-type]
        except TxlakeError as error:
            failed.append(type(error).__name__)
            lake.sql("ROLLBACK", session)  # type: ignore[arg-type]

    threads = [
        threading.Thread(target=alter, args=(first, "stock")),
        threading.Thread(target=alter, args=(second, "orders")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert failed == ["Deadlock"]
    text = browser.page("/now")
    assert "was the victim" in text
    assert browser.page("/conflicts/1")


# The graph


def _held(session: int, behind: int | None, what: str = "t") -> LockRow:
    status = "GRANT" if behind is None else "WAIT"
    return LockRow(
        resource=what, mode="X", status=status, session=session, blocker=behind, age_ms=0
    )


def test_without_waiters_there_is_no_graph() -> None:
    assert graph([_held(1, None), _held(2, None)]) is None


def test_those_who_wait_stand_right_of_those_they_wait_for() -> None:
    made = graph([_held(1, None), _held(2, 1), _held(3, 2), _held(4, 1), _held(5, 9)])
    assert made is not None
    columns = {box.session: box.x for box in made.boxes}
    assert columns[1] == columns[9] == 0 < columns[2] == columns[4] == columns[5] < columns[3]
    assert {(edge.waiter.session, edge.holder.session) for edge in made.edges} == {
        (2, 1),
        (3, 2),
        (4, 1),
        (5, 9),
    }
    assert {box.session for box in made.boxes if box.note == "head blocker"} == {1, 9}
    assert len({(box.x, box.y) for box in made.boxes}) == len(made.boxes)


def test_a_circle_is_drawn_too() -> None:
    made = graph([_held(1, 2), _held(2, 1)])
    assert made is not None
    assert len(made.boxes) == len(made.edges) == 2
