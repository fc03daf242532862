"""Processes that write one log all the time: each gets its share, soon, and the log stays busy.

A figure is measured in virtual time (`contention`), in round trips of 30 ms.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.replicated.contention import LATENCY_MS, Contention, Figures
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.turns import WriterTurns
from txlake.catalog.replicated.writer_queue import WriterQueue
from txlake.storage import open_store
from txlake.system import System

_FROM_MS, _TO_MS = 1_500.0, 8_500.0


def figures(
    contention: Contention, processes: range | None = None, from_ms: float = _FROM_MS
) -> Figures:
    contention.run(_TO_MS)
    return contention.figures(from_ms, _TO_MS, processes)


def assert_fair(found: Figures, throughput: float) -> None:
    assert min(found.shares) >= 0.6, found.shares
    assert max(found.shares) <= 1.4, found.shares
    assert found.wait(0.99) <= 50, found.waits[-10:]
    assert found.throughput >= throughput


def test_one_process_alone_waits_for_nobody() -> None:
    contention = Contention(1)
    contention.add()
    found = figures(contention)
    assert found.throughput >= 0.9
    assert found.wait(0.9) < 2
    assert found.wait(1) < 4  # now and then it also checks that the log is still its own


@pytest.mark.parametrize(("count", "seed"), [(2, 1), (3, 2), (8, 3)])
def test_each_gets_its_share(count: int, seed: int) -> None:
    contention = Contention(seed)
    for _ in range(count):
        contention.add()
    assert_fair(figures(contention), 0.5)


def test_without_turns_processes_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure sees it: who writes next has the newest state, whoever lost has not."""
    monkeypatch.setattr(WriterTurns, "wait", lambda _: None)
    monkeypatch.setattr(WriterTurns, "note_loss", lambda _, losses: None)
    contention = Contention(3)
    for _ in range(5):
        contention.add()
    found = figures(contention)
    assert min(found.shares) < 0.1
    assert max(found.shares) > 2


def test_a_process_that_takes_no_turns_starves_nobody() -> None:
    contention = Contention(5)
    contention.add(is_greedy=True)
    for _ in range(3):
        contention.add()
    found = figures(contention)
    assert min(found.shares) > 0, found.shares
    assert found.wait(1) < 200


def test_a_host_that_is_three_times_as_far_gets_its_share() -> None:
    contention = Contention(6)
    for _ in range(3):
        contention.add()
    contention.add(latency_ms=3 * LATENCY_MS)
    assert_fair(figures(contention, from_ms=2 * _FROM_MS), 0.3)


def test_a_far_host_that_joins_is_let_in() -> None:
    contention = Contention(6)
    for _ in range(3):
        contention.add()
    contention.add(latency_ms=3 * LATENCY_MS, begin_ms=_FROM_MS)
    assert figures(contention, range(3, 4)).wait(1) < 150


def test_slow_requests_hold_up_the_others_for_a_few_round_trips_only() -> None:
    contention = Contention(7)
    for _ in range(4):
        contention.add(slow_part=0.03)
    assert_fair(figures(contention), 0.3)


def test_processes_that_join_get_their_share_at_once() -> None:
    contention = Contention(8)
    for _ in range(2):
        contention.add()
    for number in range(2):
        contention.add(begin_ms=_FROM_MS - 500 + 10 * number)
    assert_fair(figures(contention), 0.5)


@pytest.mark.parametrize("is_killed", [False, True])
def test_processes_that_leave_are_not_waited_for_long(is_killed: bool) -> None:
    contention = Contention(9)
    for _ in range(2):
        contention.add()
    for number in range(2):
        contention.add(end_ms=_FROM_MS + 77 * number, is_killed=is_killed)
    found = figures(contention, range(2))
    assert_fair(found, 0.5)
    assert found.wait(1) < 30


def test_who_writes_now_and_then_does_not_wait_for_the_idle() -> None:
    contention = Contention(10)
    for _ in range(6):
        contention.add(think_ms=100 * LATENCY_MS)
    assert figures(contention).wait(0.5) < 6


NOW = 100_000.0


def queue(*writers: str) -> WriterQueue:
    """Return the queue after an entry of each, one each 10 ms until `NOW`."""
    made = WriterQueue()
    for place, writer in enumerate(writers, 1 - len(writers)):
        made.record(writer, NOW + 10 * place, 10)
    return made


def order(made: WriterQueue) -> list[str]:
    """Return the writers of the queue by their turns."""
    return sorted("abcd", key=lambda writer: made.turn_ms(writer, 10))


def test_a_look_always_sends_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entry seems to be created later than now, if a request was faster than usual."""
    database = ReplicatedDatabase(open_store(tmp_path), System())
    log = database.log
    log.latency_ms = 100.0
    log.free_ms = database.system.monotonic_ms() + 10_000
    windows: list[int] = []
    monkeypatch.setattr(log, "apply_next", windows.append)
    database._turns._look()
    assert windows == [1]
    database.close()


def test_who_wrote_least_recently_is_next() -> None:
    made = queue("a", "b", "c", "d")
    assert order(made) == ["a", "b", "c", "d"]
    assert made.turn_ms("a", 10) < NOW < made.turn_ms("b", 10)
    made.record("c", NOW + 10, 10)
    assert order(made) == ["a", "b", "d", "c"]


def test_a_newcomer_waits_for_claims_alone() -> None:
    made = queue("a", "b")
    assert made.turn_ms("new", 10) < NOW
    made.record("c", NOW, 10, is_claim=True)
    assert made.turn_ms("new", 10) > NOW


def test_claims_are_served_first_in_their_order() -> None:
    made = queue("a", "b", "c", "d")
    made.record("d", NOW, 10, is_claim=True)
    made.record("c", NOW, 10, is_claim=True)
    assert order(made) == ["d", "c", "a", "b"]
    made.record("d", NOW + 10, 10)
    assert order(made) == ["c", "a", "b", "d"]


def test_who_lets_two_turns_pass_leaves_the_queue() -> None:
    made = queue("a", "b")
    for turn in (1, 2):
        assert "a" in made
        made.record("b", NOW + 31 * turn, 10)
    assert "a" not in made
    assert "b" in made


def test_who_is_overtaken_before_its_turn_has_passed_stays() -> None:
    made = queue("a", "b")
    for turn in (1, 2, 3):
        made.record("b", NOW + 29 * turn, 10)
    assert "a" in made


def test_after_a_pause_nobody_is_waited_for() -> None:
    made = queue("a", "b", "c")
    made.record("c", NOW + 10_000, 10)
    assert len(made) == 1


def test_who_is_slow_is_waited_for_longer_but_not_for_ever() -> None:
    patience = []
    for latency_ms in (10, 100, 100_000):
        made = WriterQueue()
        made.record("slow", NOW, latency_ms)
        made.record("a", NOW, 10)
        patience.append(made.turn_ms("a", 10) - NOW)
    assert patience[1] > 5 * patience[0]
    assert patience[2] < 3_000
