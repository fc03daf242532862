"""Staged commits that are to be ratified together, and what they say of each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conflict.cases import add
from txlake.conflict.group_rules import StagedVersion, group_refusals, same_transaction
from txlake.protocol.actions import Action, CommitInfo, TransactionGroup

INFO = CommitInfo({"txnId": "x"})
BOTH = [("a", 3), ("b", 8)]


def group(
    transaction_id: str = "t", participants: Any = BOTH, catalog: str = "lake", **others: object
) -> TransactionGroup:
    made = TransactionGroup.of(transaction_id, participants, catalog)
    return TransactionGroup({**made.values, **others})


def staged(a: list[Action], b: list[Action]) -> list[StagedVersion]:
    return [
        StagedVersion(table_id="a", version=3, actions=[INFO, *a, add("x")]),
        StagedVersion(table_id="b", version=8, actions=[INFO, *b, add("y")]),
    ]


@pytest.mark.parametrize("asked", [None, "t"])
def test_commits_that_name_each_other_are_one_transaction(asked: str | None) -> None:
    assert group_refusals(staged([group()], [group()]), asked) == {}
    extended = group(startedBy="someone")
    assert group_refusals(staged([group()], [extended]), asked) == {}


def test_commits_may_say_nothing_unless_the_request_does() -> None:
    assert group_refusals(staged([], []), None) == {}
    assert group_refusals(staged([], []), "t").keys() == {"a", "b"}
    [alone, _] = staged([], [])
    assert group_refusals([alone], None) == {}


def test_one_commit_of_several_is_not_committed_alone() -> None:
    [alone, _] = staged([group()], [])
    [reason] = group_refusals([alone], None).values()
    assert "a at version 3, b at version 8" in reason
    [own, _] = staged([group(participants=BOTH[:1])], [])
    assert group_refusals([own], None) == {}


MALFORMED: dict[str, TransactionGroup] = {
    "no id": group(transactionId=None),
    "an empty id": group(transactionId=""),
    "no catalog": group(coordinatingCatalog=1),
    "no participants": TransactionGroup({"transactionId": "t", "coordinatingCatalog": "lake"}),
    "not a list": TransactionGroup({**group().values, "participants": {"a": 3}}),
    "not objects": TransactionGroup({**group().values, "participants": ["a", "b"]}),
    "one twice": group(participants=[*BOTH, BOTH[0]]),
    "a flag": TransactionGroup(
        {**group().values, "participants": [{"tableId": "a", "proposedVersion": True}]}
    ),
    "another version": group(participants=[("a", 3), ("b", 9)]),
    "one more": group(participants=[*BOTH, ("c", 1)]),
}


@pytest.mark.parametrize("odd", MALFORMED.values(), ids=MALFORMED)
def test_a_group_that_is_not_the_transactions_is_refused(odd: TransactionGroup) -> None:
    assert group_refusals(staged([odd], [odd]), None).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("b", "asked", "refused"),
    [
        ([], None, {"b"}),
        ([group("other")], None, {"b"}),
        ([group(catalog="elsewhere")], None, {"b"}),
        ([group(), group()], None, {"b"}),
        ([group()], "other", {"a", "b"}),
    ],
    ids=["none", "another id", "another catalog", "two", "not what was asked for"],
)
def test_all_are_of_the_same_transaction(
    b: list[Action], asked: str | None, refused: set[str]
) -> None:
    assert group_refusals(staged([group()], b), asked).keys() == refused


def test_commits_of_one_transaction_are_recognised() -> None:
    assert same_transaction([INFO, group()], [group(), add("x")])
    for other in ([INFO], [group("other")], [group(participants=BOTH[:1])], [group(), group()]):
        assert not same_transaction([group()], other)
        assert not same_transaction(other, [group()])


@pytest.mark.parametrize("missing", ["transactionId", "participants"])
def test_commits_that_name_nothing_are_of_no_transaction(missing: str) -> None:
    values = {key: value for key, value in group().values.items() if key != missing}
    unnamed = TransactionGroup(values)
    assert not same_transaction([unnamed], [unnamed])
