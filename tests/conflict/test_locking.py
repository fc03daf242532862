"""Lock modes against SQL Server's documented table, the order of granting, and deadlocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from txlake.conflict.locking import (
    LockMode,
    LockStatus,
    Owner,
    Queued,
    Resource,
    ResourceType,
    at_least,
    blockers,
    compatible,
    conversion_mode,
    cycle_through,
    wait_graph,
    youngest,
)

# SQL Server, "Complete Lock Compatibility Matrix", without what its indexes alone need.
DOCUMENTED = """
          Sch-S  IS  S   U   IX  SIX  X   Sch-M
    Sch-S yes    yes yes yes yes yes  yes no
    IS    yes    yes yes yes yes yes  no  no
    S     yes    yes yes yes no  no   no  no
    U     yes    yes yes no  no  no   no  no
    IX    yes    yes no  no  yes no   no  no
    SIX   yes    yes no  no  no  no   no  no
    X     yes    no  no  no  no  no   no  no
    Sch-M no     no  no  no  no  no   no  no
"""
T = Resource(type=ResourceType.OBJECT, database=1, entity=7)
OTHER = Resource(type=ResourceType.OBJECT, database=1, entity=8)
GRANT, WAIT, CONVERT = LockStatus.GRANT, LockStatus.WAIT, LockStatus.CONVERT


def grantable(requests: Sequence[Queued]) -> list[Queued]:
    """The waiting requests that nothing blocks: conversions first, then in the order of asking."""
    waiting = [one for one in requests if one.status in (WAIT, CONVERT)]
    waiting.sort(key=lambda one: (one.status is WAIT, one.id))
    return [one for one in waiting if not blockers(one, requests)]


def documented() -> dict[tuple[LockMode, LockMode], bool]:
    heading, *lines = DOCUMENTED.strip().splitlines()
    modes = [LockMode(name) for name in heading.split()]
    return {
        (LockMode(line.split()[0]), mode): word == "yes"
        for line in lines
        for mode, word in zip(modes, line.split()[1:], strict=True)
    }


def queue(text: str, resource: Resource = T) -> list[Queued]:
    """Request written as `a:IX b:Sch-M?`: owner, mode; `?` waits, `!` converts."""
    found = []
    for number, word in enumerate(text.split(), 1):
        owner, mode = word.split(":")
        status = {"?": WAIT, "!": CONVERT}.get(mode[-1], GRANT)
        found.append(
            Queued(
                id=number,
                owner=Owner(session=ord(owner), transaction=owner),
                resource=resource,
                mode=LockMode(mode.rstrip("?!")),
                status=status,
                begun=ord(owner),
            )
        )
    return found


def shown(requests: Sequence[Queued]) -> str:
    return " ".join(f"{one.owner.transaction}:{one.mode.value}" for one in requests)


def test_modes_go_together_as_documented() -> None:
    table = documented()
    assert len(table) == len(LockMode) ** 2
    assert {pair: compatible(*pair) for pair in table} == table


@pytest.mark.parametrize(
    ("held", "wanted", "enough"),
    [
        ("Sch-S", "Sch-S", True),
        ("IX", "Sch-S", True),
        ("X", "IX", True),
        ("X", "S", True),
        ("Sch-M", "X", True),
        ("U", "S", True),
        ("SIX", "IX", True),
        ("IX", "IS", True),
        ("Sch-S", "IX", False),
        ("IX", "S", False),
        ("S", "IX", False),
        ("X", "Sch-M", False),
    ],
)
def test_a_mode_may_do_for_another(held: str, wanted: str, enough: bool) -> None:
    assert at_least(LockMode(held), LockMode(wanted)) is enough


@pytest.mark.parametrize(
    ("held", "wanted", "asked"),
    [
        ("Sch-S", "IX", "IX"),
        ("IX", "Sch-S", "IX"),
        ("S", "IX", "SIX"),
        ("IS", "S", "S"),
        ("U", "IX", "SIX"),
        ("IX", "X", "X"),
        ("X", "Sch-M", "Sch-M"),
    ],
)
def test_a_conversion_asks_for_both(held: str, wanted: str, asked: str) -> None:
    assert conversion_mode(LockMode(held), LockMode(wanted)) is LockMode(asked)


def test_a_conversion_lets_in_nobody_whom_one_of_the_two_keeps_out() -> None:
    for held, wanted, other in itertools.product(LockMode, repeat=3):
        both = conversion_mode(held, wanted)
        if compatible(both, other):
            assert compatible(held, other)
            assert compatible(wanted, other)


@pytest.mark.parametrize(
    ("requests", "granted"),
    [
        ("a:Sch-M b:Sch-S?", ""),
        ("a:IX b:IX?", "b:IX"),
        ("a:IX b:Sch-M? c:Sch-S?", ""),  # a late reader waits behind the DDL
        ("b:Sch-M? c:Sch-S? d:IX?", "b:Sch-M"),
        ("c:Sch-S? d:IX? b:Sch-M?", "c:Sch-S d:IX"),
        ("a:IX b:X? c:Sch-S?", "c:Sch-S"),  # whom it doesn't hold up it needn't wait for
        ("a:IX b:S? c:IX?", ""),
        ("a:Sch-S b:Sch-M? a:IX!", "a:IX"),  # else they would wait for each other
        ("a:Sch-S c:Sch-S b:Sch-S? a:Sch-M!", ""),
        ("a:Sch-S b:IX? a:Sch-M!", "a:Sch-M"),  # a conversion comes before who waited longer
        ("a:S c:S a:IX! c:IX!", ""),
        ("a:X a:X?", "a:X"),  # nobody waits for himself
    ],
)
def test_requests_are_granted_in_order(requests: str, granted: str) -> None:
    assert shown(grantable(queue(requests))) == granted


def test_whom_a_request_waits_for() -> None:
    requests = queue("a:IX b:IX c:Sch-M? d:Sch-S? e:IX?")
    assert shown(blockers(requests[2], requests)) == "a:IX b:IX"
    assert shown(blockers(requests[3], requests)) == "c:Sch-M"
    assert shown(blockers(requests[4], requests)) == "c:Sch-M"


def test_other_things_and_victims_block_nobody() -> None:
    wanted = queue("a:X?")[0]
    assert not blockers(wanted, queue("b:Sch-M", OTHER))
    assert not blockers(wanted, queue("b:X", replace(T, subtype="COMMIT")))
    assert not blockers(wanted, queue("b:X", replace(T, database=2)))
    victim = replace(queue("b:Sch-M?")[0], id=0, status=LockStatus.VICTIM)
    assert not blockers(wanted, [victim])


def test_a_session_and_its_own_transactions_are_one() -> None:
    used = Queued(id=1, owner=Owner(session=5), resource=T, mode=LockMode.S, status=GRANT)
    wanted = queue("a:X?")[0]
    assert blockers(wanted, [used]) == [used]
    assert not blockers(replace(wanted, owner=Owner(session=5, transaction="a")), [used])
    two = [replace(used, owner=Owner(session=5, transaction="b")), wanted]
    assert blockers(replace(wanted, owner=Owner(session=5, transaction="a")), two) == two[:1]


def test_a_session_waits_for_the_transactions_of_others_alone() -> None:
    session, one = Owner(session=5), Owner(session=5, transaction="a")
    assert session.is_same_party(one)
    assert one.is_same_party(session)
    assert session.is_same_party(Owner(session=5))
    assert not session.is_same_party(Owner(session=6, transaction="a"))
    assert not Owner(session=6, transaction="a").is_same_party(session)
    assert one.is_same_party(Owner(session=6, transaction="a"))


def on(number: int, text: str) -> list[Queued]:
    return [
        replace(one, id=one.id + 100 * number) for one in queue(text, replace(T, entity=number))
    ]


@pytest.mark.parametrize(
    ("tables", "start", "cycle", "victim"),
    [
        (["a:Sch-M b:IX?", "b:Sch-M a:IX?"], "a", "a:IX b:IX", "b"),
        (["a:Sch-M b:IX?", "b:Sch-M a:IX?"], "b", "b:IX a:IX", "b"),
        (["a:Sch-M b:IX?", "b:Sch-M c:IX?", "c:Sch-M a:IX?"], "a", "a:IX c:IX b:IX", "c"),
        (["b:S a:S a:IX! b:IX!"], "b", "b:IX a:IX", "b"),  # two conversions
        (["a:IX b:Sch-M? c:Sch-S?", "c:Sch-M a:IX?"], "c", "c:Sch-S b:Sch-M a:IX", "c"),
        (["a:Sch-M b:IX?", "b:Sch-M"], "b", None, None),
        (["a:Sch-M b:IX?", "b:Sch-M c:IX?"], "c", None, None),
        # d waits for the circle and isn't of it
        (["a:Sch-M b:IX? d:Sch-S?", "b:Sch-M a:IX?"], "d", None, None),
    ],
)
def test_circles_of_waiting(
    tables: list[str], start: str, cycle: str | None, victim: str | None
) -> None:
    requests = [one for number, text in enumerate(tables, 1) for one in on(number, text)]
    owner = Owner(session=ord(start), transaction=start)
    found = cycle_through(owner, wait_graph(requests))
    if cycle is None:
        assert found is None
    else:
        assert found is not None
        assert shown(found) == cycle
        assert youngest(found).owner.transaction == victim


def test_a_victim_is_no_longer_in_the_circle() -> None:
    requests = [*on(1, "a:Sch-M b:IX?"), *on(2, "b:Sch-M a:IX?")]
    requests[1] = replace(requests[1], status=LockStatus.VICTIM)
    assert cycle_through(Owner(session=ord("a"), transaction="a"), wait_graph(requests)) is None


def test_whatever_is_asked_in_any_order_all_of_it_is_granted_in_the_end() -> None:
    """Owners of one lock each: nobody starves, and no two that exclude each other hold one."""
    for seed in range(200):
        chance = random.Random(seed)
        requests = [
            replace(one, mode=chance.choice(list(LockMode)))
            for one in queue(" ".join(f"{name}:X?" for name in "abcdefgh"))
        ]
        for _ in range(len(requests)):
            ready = grantable(requests)
            held = [one for one in requests if one.status is GRANT]
            for one, other in itertools.combinations([*ready, *held], 2):
                assert compatible(one.mode, other.mode), seed
            assert ready or held
            requests = [replace(one, status=GRANT) if one in ready else one for one in requests]
            ended = chance.choice([one for one in requests if one.status is GRANT])
            requests.remove(ended)
        assert not requests
