"""Ratified commits become files: in how many requests, and what is said where that fails."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tests.commit.lake_of import LakeOf, lake_of, when, write_both
from tests.commit.log_of import add, metadata
from txlake.commit.publication import (
    RatifiedCommit,
    made_by_txlake,
    publish,
    publish_pending,
    publish_ratified,
)
from txlake.errors import Unavailable
from txlake.protocol.file_names import commit_path
from txlake.settings import Settings

STAGING = Settings(inline_commit_bytes_max=0)


def away() -> None:
    raise Unavailable("away")


def held_back(lake: LakeOf) -> None:
    """A version of a that its committer can't publish."""
    store = lake.fake("a")
    store.failing.add(commit_path(1))
    lake.append("a", add("x"))
    store.failing.clear()


def newest_of(lake: LakeOf) -> RatifiedCommit:
    commit = lake.ledger.tables["a"].commits[1]
    return RatifiedCommit(lake.store("a"), commit, "a", published=0)


def test_where_the_version_before_is_there_a_publication_is_one_put_and_one_note() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.table("a").stage([add("x")], operation="WRITE")
    lake.ledger.requests.clear()
    lake.fake("a").requests.clear()
    tx.commit()
    assert lake.ledger.requests == ["ratify", "record_publication_soon"]
    kinds = [kind for kind, path in lake.fake("a").requests if path.endswith(".json")]
    # Is the next version free, the one before there, and still so after the ratification? The put
    # is how the fake store makes what is absent.
    assert kinds == ["head", "head", "head", "put_if_absent", "put"]


def test_of_a_new_table_there_is_no_version_before() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.create("c", metadata())
    lake.ledger.requests.clear()
    tx.commit()
    assert lake.ledger.requests == ["ratify", "record_publication"]
    assert ("head", commit_path(-1)) not in lake.fake("c").requests


def test_what_was_staged_is_noted_at_once() -> None:
    lake = lake_of(settings=STAGING)
    tx = write_both(lake)
    lake.ledger.requests.clear()
    tx.commit()
    assert lake.ledger.requests == ["ratify", "record_publication"]


def test_what_came_before_is_noted_at_once() -> None:
    lake = lake_of()
    held_back(lake)
    newest = replace(newest_of(lake), published=None)
    lake.ledger.requests.clear()
    [ratified] = lake.ledger.ratified[-1:]
    ahead = replace(newest, commit=replace(newest.commit, version=2))
    lake.ledger.tables["a"].commits[2] = ahead.commit
    lake.ledger.tables["a"].head = 2
    assert publish_ratified(lake.ledger, [ahead], soon=ratified).tables == frozenset({"a"})
    assert lake.ledger.requests == ["head", "record_publication"]


def test_nothing_to_publish_is_nothing_to_note() -> None:
    lake = lake_of()
    lake.ledger.requests.clear()
    publish(lake.store("a"), lake.ledger, [], table="a")
    assert publish_ratified(lake.ledger, []).tables == frozenset()
    assert lake.ledger.requests == []


def test_a_table_that_was_dropped_meanwhile_is_not_published_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = lake_of()
    held_back(lake)
    newest = newest_of(lake)
    del lake.fake("a").files[commit_path(0)]
    del lake.ledger.tables["a"]
    lake.ledger.requests.clear()
    caplog.clear()
    assert publish_ratified(lake.ledger, [newest]).tables == frozenset()
    assert lake.ledger.requests == ["head"]
    assert not caplog.records  # nothing is left for others to do
    other = RatifiedCommit(lake.store("b"), lake.ledger.tables["b"].commits[0], "b", published=-1)
    assert publish_ratified(lake.ledger, [newest, other]).tables == frozenset({"b"})
    assert commit_path(1) not in lake.fake("a").files


def test_what_another_has_published_meanwhile_is_noted_by_that_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = lake_of()
    held_back(lake)
    newest = replace(newest_of(lake), published=None)
    publish_pending(lake.store("a"), lake.ledger, "a", table="a")
    lake.ledger.requests.clear()
    caplog.clear()
    assert publish_ratified(lake.ledger, [newest]).tables == frozenset({"a"})
    assert lake.ledger.requests == ["head"]
    assert not caplog.records


def test_what_could_not_be_published_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lake = lake_of()
    with caplog.at_level(logging.WARNING):
        held_back(lake)
    assert "a: committed, but not published yet: 1: " in caplog.text
    caplog.clear()
    lake.fake("a").failing.add(commit_path(1))
    head = publish_pending(lake.store("a"), lake.ledger, "a", table="a")
    assert head is not None
    assert len(head.pending) == 1
    assert "a: committed, but not published yet: 1: " in caplog.text


def test_what_could_not_be_noted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lake = lake_of(settings=STAGING)  # what is staged is noted at once
    tx = write_both(lake)
    when(lake, "record_publication", away)
    with caplog.at_level(logging.WARNING):
        tx.commit()
    assert [text.partition(":")[0] for text in caplog.messages] == ["a", "b"]


def test_a_staged_commit_that_cannot_be_tidied_up_is_published_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = lake_of(settings=STAGING)
    tx = write_both(lake)

    def refused(paths: object) -> None:
        raise Unavailable("away")

    lake.fake("a").delete = refused  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO):
        tx.commit()
    assert "a: a staged commit was left behind: away" in caplog.text
    assert [lake.ledger.tables[name].published for name in ("a", "b")] == [1, 1]


def test_a_file_at_the_version_before_is_not_taken_for_its_publication() -> None:
    lake = lake_of()
    held_back(lake)  # version 1 is ratified alone
    lake.fake("a").files[commit_path(1)] = (b'{"commitInfo":{}}\n', 1)
    ratified = lake.ledger.tables["a"].commits[1]
    commit = replace(ratified, version=2)
    lake.ledger.tables["a"].commits[2] = commit
    lake.ledger.tables["a"].head = 2
    made = publish_ratified(
        lake.ledger, [RatifiedCommit(lake.store("a"), commit, "a", published=0)]
    )
    assert made.tables == frozenset()
    assert "00000000000000000001.json holds another commit" in str(made.occupied)
    assert lake.ledger.tables["a"].published == 0
    assert commit_path(2) not in lake.fake("a").files


@pytest.mark.parametrize("found", [b"garbage", b"", b'{"commitInfo":{}}', b'{"add":{}}'])
def test_bytes_that_do_not_say_who_wrote_them_are_not_ours(found: bytes) -> None:
    assert not made_by_txlake(found)


def test_what_txlake_wrote_says_so() -> None:
    assert made_by_txlake(b'{"commitInfo":{"engineInfo":"txlake/0.1.0"}}')
    assert not made_by_txlake(b'{"commitInfo":{"engineInfo":"txlakes/0.1.0"}}')
