"""Tables that their catalog opens to other engines: what says so, and what stays."""

from __future__ import annotations

import json

import pytest

from tests.commit.lake_of import LakeOf, lake_of
from tests.commit.log_of import PROTOCOL, LogOf, add, metadata
from txlake.commit.membership import (
    OPEN_PROPERTIES,
    TABLE_ID,
    Membership,
    attach_actions,
    detach_actions,
    membership_of,
    retained_properties,
)
from txlake.commit.metadata_validation import protocol_to_set
from txlake.commit.transaction_group import GROUP, group_tags
from txlake.errors import InvalidRequest, MetadataChangedException
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Metadata, Protocol
from txlake.protocol.file_names import STAGED_FOLDER
from txlake.settings import Settings

LAKE = Membership(lake="lake-1", table="table-1", name="sales.orders")
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "appendOnly", "invariants"),
)


def opened(before: Snapshot) -> Snapshot:
    """The table after it was opened."""
    return before.apply(attach_actions(LAKE, before, opens=True), version=before.version + 1)


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(one).__name__ for one in actions]


def test_an_open_table_has_what_clients_expect() -> None:
    now = opened(LogOf().create().open().latest())
    assert OPEN_PROPERTIES == {
        "delta.checkpoint.writeStatsAsJson": "true",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpointPolicy": "v2",
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
    }
    assert dict(now.metadata.configuration) == {**OPEN_PROPERTIES, TABLE_ID: LAKE.table}
    assert {
        "catalogManaged",
        "deletionVectors",
        "inCommitTimestamp",
        "v2Checkpoint",
    } <= now.features
    assert membership_of(now) == LAKE


@pytest.mark.parametrize("has_features", [True, False])
def test_what_a_table_had_stays_when_it_is_opened(has_features: bool) -> None:
    before = LogOf().create(protocol=FEATURES if has_features else PROTOCOL).open().latest()
    attached = before.apply(attach_actions(LAKE, before), version=1)
    for one in (before, attached):
        now = opened(one)
        assert before.features <= now.features
        assert "txlakeCatalog" not in now.features


def test_opening_twice_changes_nothing_but_the_name() -> None:
    now = opened(LogOf().create().open().latest())
    assert kinds(attach_actions(LAKE, now, opens=True)) == ["DomainMetadata"]
    assert kinds(attach_actions(LAKE, now)) == ["DomainMetadata"]
    assert kinds(attach_actions(LAKE, LogOf().create().open().latest())) == [
        "Protocol",
        "DomainMetadata",
    ]


def test_an_open_tables_properties_are_kept() -> None:
    before = LogOf().create(configuration={"delta.checkpointPolicy": "v2"}).open().latest()
    assert retained_properties(before) == {}
    now = opened(before)
    assert retained_properties(now) == {**OPEN_PROPERTIES, TABLE_ID: LAKE.table}


def test_a_detached_table_forgets_its_name_alone() -> None:
    before = LogOf().create(configuration={"a": "b"}).open().latest()
    now = opened(before)
    left = now.apply(detach_actions(now), version=2)
    assert dict(left.metadata.configuration) == {"a": "b", **OPEN_PROPERTIES}
    assert "catalogManaged" not in left.features
    attached = before.apply(attach_actions(LAKE, before), version=1)
    assert kinds(detach_actions(attached)) == ["Protocol", "DomainMetadata"]


def test_an_open_table_that_names_no_lake_is_another_catalogs() -> None:
    now = opened(LogOf().create().open().latest())
    foreign = LogOf().create(protocol=now.protocol, configuration=dict(now.metadata.configuration))
    assert membership_of(foreign.open().latest()) is None


def test_a_commit_says_its_group_where_it_has_one() -> None:
    assert group_tags("t", ["a"]) == {}
    tags = group_tags("t", ["b", "a"])
    assert json.loads(tags.pop(GROUP)) == {"id": "t", "tables": ["a", "b"]}
    assert tags == {"delta.multiTableTransaction.transactionId": "t"}


@pytest.mark.parametrize(
    ("opens", "inline", "is_staged"),
    [(True, 10**6, True), (False, 0, True), (False, 10**6, False)],
)
def test_what_is_staged(opens: bool, inline: int, is_staged: bool) -> None:
    lake = LakeOf(Settings(inline_commit_bytes_max=inline)).create("a", opens=opens)
    seen: list[bool] = []
    put = lake.fake("a").put

    def noted(path: str, data: bytes) -> None:
        seen.append(path.startswith(STAGED_FOLDER))
        put(path, data)

    lake.fake("a").put = noted  # type: ignore[method-assign]
    lake.append("a", add("x"))
    assert (True in seen) is is_staged


def test_a_feature_of_ours_makes_room_for_theirs_alone() -> None:
    before = LogOf().create().open().latest()
    attached = before.apply(attach_actions(LAKE, before), version=1)
    theirs = opened(attached).protocol
    wanted = metadata(configuration=dict(opened(attached).metadata.configuration))
    assert protocol_to_set(wanted, theirs, attached.protocol, table="t") is not None
    without = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=(),
        writer_features=tuple(sorted(attached.features - {"txlakeCatalog"})),
    )
    with pytest.raises(InvalidRequest, match="without txlakeCatalog"):
        protocol_to_set(metadata(), without, attached.protocol, table="t")


@pytest.mark.parametrize("found", [None, "another"])
def test_the_id_of_an_open_table_stays(found: str | None) -> None:
    lake = LakeOf().create("a", opens=True)
    transaction = lake.begin()
    part = transaction.table("a")
    now = part.base.metadata
    kept = {key: text for key, text in now.configuration.items() if key != TABLE_ID}
    more = {} if found is None else {TABLE_ID: found}
    changed = Metadata(
        id=now.id,
        schema_string=now.schema_string,
        partition_columns=now.partition_columns,
        configuration={**kept, **more},
        format=now.format,
    )
    with pytest.raises((InvalidRequest, MetadataChangedException), match="tableId"):
        part.stage([changed], operation="SET TBLPROPERTIES")


def test_a_plain_lake_table_may_have_any_properties() -> None:
    assert lake_of("a").open("a").latest().features >= {"txlakeCatalog"}
