"""Whose a table is: the actions that say so, and commits that would go past its catalog."""

from __future__ import annotations

import json

import pytest

from tests.commit.committing import FULL, append, begin
from tests.commit.log_of import PROTOCOL, LogOf, add, metadata
from txlake.commit.membership import (
    ATTACH,
    DETACH,
    Membership,
    attach_actions,
    detach_actions,
    membership_of,
)
from txlake.errors import CorruptTable, InvalidRequest, MetadataChangedException, TxlakeError
from txlake.protocol.actions import DomainMetadata, Protocol

LAKE = Membership(lake="lake-1", table="table-1", name="sales.orders")
MAPPED = {"delta.columnMapping.mode": "none"}


def attach(table: LogOf) -> None:
    transaction = begin(table)
    transaction.stage(attach_actions(LAKE, transaction.base), operation=ATTACH)
    transaction.commit()


@pytest.mark.parametrize(
    ("protocol", "features", "reader"),
    [
        (PROTOCOL, {"appendOnly", "invariants"}, 1),
        (
            Protocol(min_reader_version=2, min_writer_version=5),
            {
                "appendOnly",
                "changeDataFeed",
                "checkConstraints",
                "columnMapping",
                "generatedColumns",
                "invariants",
            },
            2,
        ),
        (FULL, set(FULL.writer_features or ()), 3),
    ],
)
def test_attaching_lists_all_that_the_table_had(
    protocol: Protocol, features: set[str], reader: int
) -> None:
    table = LogOf().create(protocol=protocol)
    attach(table)
    now = table.open().latest()
    assert now.features == features | {"txlakeCatalog", "domainMetadata"}
    assert (now.protocol.min_reader_version, now.protocol.min_writer_version) == (reader, 7)
    assert now.protocol.reader_features == protocol.reader_features
    assert json.loads(now.domains["txlake.catalog"].configuration) == {
        "lake": "lake-1",
        "table": "table-1",
        "name": "sales.orders",
    }
    assert membership_of(now) == LAKE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PROTOCOL, PROTOCOL),
        (
            Protocol(min_reader_version=2, min_writer_version=5),
            Protocol(min_reader_version=2, min_writer_version=5),
        ),
        (FULL, FULL),  # row tracking stands on domainMetadata
    ],
)
def test_a_detached_table_has_the_protocol_that_it_had(before: Protocol, after: Protocol) -> None:
    base = LogOf().create(protocol=before).open().latest()
    attached = base.apply(attach_actions(LAKE, base))
    detached = attached.apply(detach_actions(attached))
    assert detached.protocol == after
    assert membership_of(detached) is None
    assert "txlake.catalog" not in detached.domains
    assert detach_actions(detached) == ()


def test_domains_of_others_keep_their_feature() -> None:
    base = LogOf().create().open().latest()
    attached = base.apply(attach_actions(LAKE, base))
    other = DomainMetadata(domain="mine", configuration="{}", removed=False)
    detached = attached.apply([other]).apply(detach_actions(attached.apply([other])))
    assert detached.features == {"appendOnly", "invariants", "domainMetadata"}
    assert set(detached.domains) == {"mine"}


def test_what_attaching_and_detaching_stage_is_accepted() -> None:
    table = LogOf()
    transaction = begin(table)
    settings = metadata()
    transaction.stage(
        [settings, *attach_actions(LAKE, transaction.base, settings)], operation="CREATE TABLE"
    )
    assert membership_of(transaction.view) == LAKE
    transaction.stage(detach_actions(transaction.view), operation=DETACH)
    assert membership_of(transaction.view) is None
    transaction.stage(attach_actions(LAKE, transaction.view), operation=ATTACH)
    transaction.stage(attach_actions(LAKE, transaction.view), operation=ATTACH)
    assert membership_of(transaction.view) == LAKE


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"lake":"l","table":"t"}'])
def test_a_table_that_doesnt_say_whose_it_is(text: str | None) -> None:
    base = LogOf().create().open().latest()
    protocol, domain = attach_actions(LAKE, base)
    assert isinstance(domain, DomainMetadata)
    told = (
        []
        if text is None
        else [DomainMetadata(domain=domain.domain, configuration=text, removed=False)]
    )
    snapshot = base.apply([protocol, *told])
    with pytest.raises(CorruptTable, match=r"expected lake, table and name in the metadata domain"):
        membership_of(snapshot)
    assert membership_of(snapshot.apply(detach_actions(snapshot))) is None


def test_commits_that_go_past_the_catalog_are_refused() -> None:
    table = LogOf().create()
    attach(table)
    paths = table.paths
    with pytest.raises(
        InvalidRequest,
        match=r"^t: version 1 belongs to the catalog of lake lake-1, where its name is "
        r"sales\.orders: .*txlakeCatalog.*Use the name sales\.orders in that lake, or detach",
    ):
        append(table, "a")
    assert table.paths == paths


def test_a_table_is_attached_once() -> None:
    table = LogOf().create()
    attach(table)
    transaction = begin(table)
    other = Membership(lake="lake-2", table="table-2", name="mine")
    actions = (transaction.base.protocol, *attach_actions(other, transaction.base))
    transaction.stage(actions, operation=ATTACH)
    with pytest.raises(InvalidRequest, match="belongs to the catalog of lake lake-1"):
        transaction.commit()


def test_a_table_that_was_attached_meanwhile_is_refused() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    attach(table)
    paths = table.paths
    with pytest.raises(
        InvalidRequest, match=r"^t: version 1 belongs to .* lake-1, .*sales\.orders"
    ):
        transaction.commit()
    assert table.paths == paths


def test_two_that_attach_conflict() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage(attach_actions(LAKE, transaction.base), operation=ATTACH)
    attach(table)
    with pytest.raises(TxlakeError, match="protocol, which this transaction changes too"):
        transaction.commit()


def test_a_refusal_where_nothing_says_whose_it_is() -> None:
    table = LogOf().create()
    (protocol, _) = attach_actions(LAKE, table.open().latest())
    table.commit(1, protocol)
    with pytest.raises(InvalidRequest, match="catalog of a lake that its metadata domain txlake"):
        append(table, "a")


def test_moving_on_with_another_domain_is_a_conflict() -> None:
    table = LogOf().create(protocol=FULL)
    first, second = begin(table), begin(table)
    for transaction in (first, second):
        domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
        transaction.stage([domain], operation="SET")
    first.commit()
    with pytest.raises(MetadataChangedException):
        second.commit()
