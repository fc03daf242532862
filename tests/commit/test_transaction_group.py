"""What the commits of one transaction say of each other, in the log and to the catalog."""

from __future__ import annotations

import json

import pytest

from tests.commit.foreign import stage
from tests.commit.lake_of import BOTH, LakeOf, lake_of, when, write_both
from tests.commit.log_of import add
from txlake.commit.foreign_commit import (
    Accepted,
    AlreadyCommitted,
    CommitRequest,
    Overtaken,
    Refused,
    Rejected,
    commit_foreign_together,
)
from txlake.commit.transaction_group import (
    GROUP,
    TRANSACTION_ID,
    transaction_group,
    with_group,
    without_group,
)
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, CommitInfo, TransactionGroup, decode_actions
from txlake.protocol.file_names import STAGED_FOLDER, commit_path

MAX = 10**6


def lines(lake: LakeOf, name: str, version: int) -> list[dict[str, object]]:
    """The lines of a published commit."""
    text = lake.fake(name).get(commit_path(version)).decode()
    return [json.loads(line) for line in text.splitlines()]


def group_in(lake: LakeOf, name: str, version: int) -> object:
    """The group in a commit, which comes after the commitInfo."""
    found = lines(lake, name, version)
    [at] = [place for place, line in enumerate(found) if "transactionGroup" in line]
    assert at == 1
    assert "commitInfo" in found[0]
    return found[at]["transactionGroup"]


@pytest.mark.parametrize("opens", [False, True], ids=["closed", "open"])
def test_each_commit_names_all_of_them(opens: bool) -> None:
    lake = LakeOf().create(*BOTH, opens=opens)
    lake.append("b", add("before"))
    tx = write_both(lake)
    tx.commit()
    expected = {
        "transactionId": tx.id,
        "participants": [
            {"tableId": "a", "proposedVersion": 1},
            {"tableId": "b", "proposedVersion": 2},
        ],
        "coordinatingCatalog": "lake",
    }
    assert group_in(lake, "a", 1) == group_in(lake, "b", 2) == expected
    info: dict[str, dict[str, dict[str, str]]] = lines(lake, "a", 1)[0]  # type: ignore[assignment]
    tags = info["commitInfo"]["tags"]
    assert tags[TRANSACTION_ID] == tx.id
    assert json.loads(tags[GROUP]) == {"id": tx.id, "tables": ["a", "b"]}


def test_the_staged_file_names_them_too() -> None:
    lake = LakeOf().create(*BOTH, opens=True)
    lake.fake("a").failing.add(commit_path(1))
    tx = write_both(lake)
    tx.commit()
    head = lake.ledger.head("a")
    assert head is not None
    [pending] = head.pending
    staged = lake.fake("a").get(f"{STAGED_FOLDER}/{pending.staged}")
    group = TransactionGroup.of(tx.id, [("a", 1), ("b", 1)], "lake")
    assert group in decode_actions(staged, file="a")


def test_a_commit_of_one_table_names_none() -> None:
    lake = lake_of()
    lake.append("a", add("x"))
    assert all("transactionGroup" not in line for line in lines(lake, "a", 1))


def test_an_attempt_that_lost_is_not_what_it_says() -> None:
    lake = lake_of()
    tx = write_both(lake)
    when(lake, "ratify", lambda: lake.append("a", add("other")))
    tx.commit()
    group = group_in(lake, "b", 1)
    assert group == group_in(lake, "a", 2)
    assert isinstance(group, dict)
    assert [one["proposedVersion"] for one in group["participants"]] == [2, 1]


def test_new_tables_are_among_them() -> None:
    lake = LakeOf().create("a", "b")
    group = TransactionGroup(dict(group_in(lake, "a", 0)))  # type: ignore[call-overload]
    assert group.participants == frozenset({("a", 0), ("b", 0)})
    assert group.catalog == "lake"


def test_tables_that_name_no_lake_have_no_catalog() -> None:
    states = {"a": [Snapshot.empty("a")], "b": [Snapshot.empty("b")]}
    assert transaction_group("t", states) is None
    assert with_group([CommitInfo({}), add("x")], None) == (CommitInfo({}), add("x"))


def test_readers_and_later_commits_take_no_notice() -> None:
    lake = lake_of()
    write_both(lake).commit()
    lake.append("a", add("later"))
    assert len(lake.plain("a").latest().files) == 2
    [found] = lake.open("a").commits(0, 1)
    assert [type(one) for one in found.actions].count(TransactionGroup) == 1


def test_a_commit_that_another_transaction_takes_over_says_nothing_of_its_own() -> None:
    group = TransactionGroup.of("t", [("a", 1), ("b", 1)], "lake")
    own = {"k": "v", GROUP: "{}", TRANSACTION_ID: "t"}
    actions: list[Action] = [CommitInfo({"tags": own, "txnId": "t"}), group, add("x")]
    assert without_group(actions) == (CommitInfo({"tags": {"k": "v"}, "txnId": "t"}), add("x"))
    for odd in ({}, {"tags": None}, {"tags": {"k": "v"}}, {"tags": [GROUP]}):
        info = CommitInfo(dict(odd))
        [kept] = without_group([info])
        assert kept is info


# Other engines' commits


def opened(*names: str) -> LakeOf:
    return LakeOf().create(*(names or BOTH), opens=True)


def request(lake: LakeOf, name: str, file: str, *more: Action, version: int = 1) -> CommitRequest:
    """The request for an append, staged anew."""
    time_ms = lake.system.now_ms() + version * 1000
    return CommitRequest(
        lake.open(name), stage(lake.store(name), version, time_ms, *more, add(file))
    )


def ask(
    lake: LakeOf, *requests: CommitRequest, group_id: str | None = "g"
) -> list[Accepted | AlreadyCommitted] | Rejected:
    found = commit_foreign_together(
        requests, {}, transaction_id=lake.system.new_id(), group_id=group_id, bytes_max=MAX
    )
    return found if isinstance(found, Rejected) else list(found)


def of_both(*versions: tuple[str, int], transaction_id: str = "g") -> TransactionGroup:
    return TransactionGroup.of(transaction_id, versions or [("a", 1), ("b", 1)], "lake")


def test_commits_of_one_transaction_are_ratified_together() -> None:
    lake = opened()
    asked = [request(lake, name, f"{name}1", of_both()) for name in BOTH]
    [first, second] = ask(lake, *asked)  # type: ignore[misc]
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert group_in(lake, "a", 1) == group_in(lake, "b", 1) == of_both().values
    again = ask(lake, *asked)
    assert isinstance(again, list)
    assert [type(one) for one in again] == [AlreadyCommitted] * 2


def test_a_transaction_that_was_staged_anew_is_committed_once() -> None:
    """The reply was lost, and the client has staged everything again."""
    lake = opened()
    ask(lake, *[request(lake, name, f"{name}1", of_both()) for name in BOTH])
    again = ask(lake, *[request(lake, name, f"{name}2", of_both()) for name in BOTH])
    assert isinstance(again, list)
    assert [type(one) for one in again] == [AlreadyCommitted] * 2
    assert [one.path for one in lake.open("a").latest().files.adds()] == ["a1"]
    other = of_both(transaction_id="h")
    lost = ask(lake, *[request(lake, name, f"{name}3", other) for name in BOTH], group_id="h")
    assert lost == Rejected({"a": Overtaken(1), "b": Overtaken(1)})


def test_every_table_in_the_way_is_named() -> None:
    lake = opened("a", "b", "c")
    versions = [(name, 1) for name in ("a", "b", "c")]
    asked = [request(lake, name, f"{name}1", of_both(*versions)) for name in ("a", "b", "c")]
    lake.append("a", add("x"))
    lake.append("c", add("x"))
    assert ask(lake, *asked) == Rejected({"a": Overtaken(1), "c": Overtaken(1)})
    asked = [
        request(lake, name, f"{name}1", of_both(("b", 1), ("c", 2)), version=version)
        for name, version in (("b", 1), ("c", 2))
    ]
    when(lake, "ratify", lambda: [lake.append(name, add("y")) for name in ("b", "c")])
    assert ask(lake, *asked) == Rejected({"b": Overtaken(1), "c": Overtaken(2)})


def test_a_part_of_a_transaction_is_not_ratified_alone() -> None:
    lake = opened()
    found = ask(lake, request(lake, "a", "a1", of_both()), group_id=None)
    assert isinstance(found, Rejected)
    [(name, cause)] = found.causes.items()
    assert name == "a"
    assert isinstance(cause, Refused)
    assert cause.is_permanent
    assert "b at version 1" in cause.reason
    assert lake.open("a").latest().version == 0
    ask(lake, *[request(lake, name, f"{name}1", of_both()) for name in BOTH])
    half = ask(lake, request(lake, "a", "a1", of_both()), request(lake, "b", "b2", version=2))
    assert isinstance(half, Rejected)


def test_unknown_actions_of_others_stay_in_the_log() -> None:
    lake = opened("a")
    line = b'{"somethingNew":{"x":[1,{"y":null}]}}\n'
    staged = stage(lake.store("a"), 1, lake.system.now_ms() + 5, add("x"))
    path = f"{STAGED_FOLDER}/{staged.name}"
    content = lake.fake("a").get(path) + line
    lake.store("a").put(path, content)
    staged = type(staged)(
        version=1, name=staged.name, timestamp_ms=staged.timestamp_ms, size_bytes=len(content)
    )
    assert isinstance(ask(lake, CommitRequest(lake.open("a"), staged), group_id=None), list)
    assert lake.fake("a").get(commit_path(1)) == content
    assert len(lake.open("a").latest().files) == 1
