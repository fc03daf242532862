"""The registry of a table's branches, by Delta's branching RFC."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import DomainMetadata
from txlake.protocol.branching import (
    DOMAIN,
    Registry,
    TableBranch,
    branch_place,
    registry_of,
    split_place,
)

B = TableBranch(id="i1", name="Nightly", base=3, created_version=4, created_ms=5)
OTHERS = {"branchId": "i2", "name": "x", "baseVersion": 0, "createdVersion": 1, "status": "open"}


def read(text: str, *, removed: bool = False) -> Registry:
    domain = DomainMetadata(domain=DOMAIN, configuration=text, removed=removed)
    return registry_of({DOMAIN: domain}, table="t")


def test_the_registry_is_written_as_the_rfc_has_it() -> None:
    registry = Registry((), "t").with_created(B)
    domain = registry.action()
    assert (domain.domain, domain.removed) == (DOMAIN, False)
    expected = {
        "branchId": "i1",
        "name": "Nightly",
        "baseVersion": 3,
        "createdVersion": 4,
        "status": "open",
        "txlakeCreated": 5,
    }
    assert json.loads(domain.configuration) == {"branches": [expected]}
    assert read(domain.configuration) == registry
    published = registry.with_published(B, 9)
    [entry] = json.loads(published.action().configuration)["branches"]
    assert entry == {**expected, "status": "published", "publishedVersion": 9}
    again = registry.with_reopened(B)
    assert json.loads(again.action().configuration)["branches"][0]["txlakeReopened"] == 1
    assert read(again.action().configuration).require("nightly") == replace(B, reopened=1)


def test_blocks_of_row_ids_are_never_given_again() -> None:
    registry = Registry((), "t").with_created(replace(B, row_id_block=7))
    assert registry.require("nightly").row_id_block == 7
    registry = registry.with_discarded(registry.require("nightly"))
    registry = registry.with_created(replace(B, id="i2", row_id_block=3))
    text = registry.action().configuration
    assert json.loads(text)["txlakeRowIdBlocks"] == 7
    assert read(text).row_id_blocks == 7
    assert read(text).require("nightly").row_id_block == 3


def test_what_others_wrote_into_the_registry_stays() -> None:
    entry = {**OTHERS, "owner": {"team": "a"}}
    registry = read(json.dumps({"branches": [entry], "newer": [1]}))
    assert registry.require("X").created_ms is None
    text = registry.with_created(B).action().configuration
    assert json.loads(text)["newer"] == [1]
    assert json.loads(text)["branches"][0] == entry


def test_without_the_domain_there_is_no_branch() -> None:
    assert registry_of({}, table="t") == Registry((), "t")
    assert read(json.dumps({"branches": [OTHERS]}), removed=True) == Registry((), "t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"branches": 1}',
        '{"branches": [1]}',
        json.dumps({"branches": [{**OTHERS, "baseVersion": "0"}]}),
        json.dumps({"branches": [{**OTHERS, "baseVersion": -1}]}),
        json.dumps({"branches": [{**OTHERS, "createdVersion": True}]}),
        json.dumps({"branches": [{**OTHERS, "name": 1}]}),
        json.dumps({"branches": [{**OTHERS, "txlakeReopened": None}]}),
        json.dumps({"branches": [{**OTHERS, "publishedVersion": 1.5}]}),
        json.dumps({"branches": [{"name": "x"}]}),
        json.dumps({"branches": [], "txlakeRowIdBlocks": "1"}),
    ],
)
def test_a_damaged_registry_is_named(text: str) -> None:
    with pytest.raises(CorruptTable, match=r"t: domain delta\.tableBranching: expected"):
        read(text)


def test_a_name_is_free_once_its_branch_has_ended() -> None:
    registry = Registry((), "t").with_created(B)
    with pytest.raises(InvalidRequest, match="has a branch 'NIGHTLY' already"):
        registry.with_created(replace(B, id="i2", name="NIGHTLY"))
    ended = registry.with_discarded(B)
    assert ended.open == ()
    assert ended.with_created(replace(B, id="i2")).require("nightly").id == "i2"
    with pytest.raises(InvalidRequest, match="has ended: it was dropped, or rebased"):
        ended.require("nightly")
    with pytest.raises(InvalidRequest, match="has ended: it was published as version 9"):
        registry.with_published(B, 9).require("nightly")
    with pytest.raises(InvalidRequest, match="has no branch 'other'"):
        ended.require("other")


def test_only_a_branch_as_it_was_read_is_changed() -> None:
    registry = Registry((), "t").with_created(B)
    reopened = registry.with_reopened(B)
    for change in (
        reopened.with_reopened,
        reopened.with_discarded,
        lambda branch: reopened.with_published(branch, 9),
    ):
        with pytest.raises(InvalidRequest, match="opened again meanwhile"):
            change(B)
    with pytest.raises(InvalidRequest, match="published as version 9"):
        registry.with_published(B, 9).with_discarded(B)
    with pytest.raises(InvalidRequest, match="'Nightly' has ended"):
        Registry((), "t").with_discarded(B)


def test_a_branch_is_unchanged_whatever_became_of_others() -> None:
    other = replace(B, id="i2", name="other")
    registry = Registry((), "t").with_created(B).with_created(other).with_discarded(B)
    registry.require_unchanged(other)


def test_the_branches_that_ended_last_are_kept() -> None:
    registry = Registry((), "t").with_created(B)
    for number in range(30):
        branch = replace(B, id=f"n{number}", name=f"n{number}")
        registry = registry.with_created(branch).with_discarded(branch)
    assert [one.id for one in registry.branches] == ["i1", *(f"n{n}" for n in range(10, 30))]


def test_a_place_names_a_branch_by_its_end() -> None:
    assert split_place("/p/t") == ("/p/t", None)
    assert split_place("/p/t@branch:a/1") == ("/p/t", "a/1")
    assert split_place("/p/t/@branch:b") == ("/p/t", "b")
    assert split_place("/p/t@v3") == ("/p/t@v3", None)
    assert split_place(branch_place("s3://b/t", "x")) == ("s3://b/t", "x")
