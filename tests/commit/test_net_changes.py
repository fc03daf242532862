"""What a transaction comes to row by row: files a (4 rows) and b (3 rows), and what became of them.

The images that statements write are files named f, g, ...; what a file's rows were made of is said
as statements say it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.commit.committing import FULL, actions_at, begin, info_at
from tests.commit.log_of import LogOf, add, metadata, vector
from txlake.commit.feed_rules import has_feed
from txlake.commit.merge_actions import StagedChanges
from txlake.commit.net_changes import ChangedRows, net_changes
from txlake.commit.row_origins import Origins, without_vectors
from txlake.commit.row_sources_codec import known_sources, row_sources_tag
from txlake.commit.table_log import Commit
from txlake.commit.table_transaction import TableTransaction
from txlake.datafiles.origins import NO_FILE
from txlake.errors import InvalidRequest
from txlake.log.net_actions import net_actions
from txlake.protocol.actions import Action, Add, Cdc, CommitInfo, DeletionVector, Protocol, Remove
from txlake.protocol.sources import Source, sources_text

ON = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
OFF = {**ON, "delta.enableChangeDataFeed": "false"}
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=(*(FULL.writer_features or ()), "changeDataFeed"),
)
COUNTS = {"a": 4, "b": 3, "c": 7, "d": 2, "e": 3, "h": 5, "k": 6}
Rows = tuple[str, str, list[int]]


class Numbered:
    """Deletion vectors by their offsets, which are decimal digits of the rows that they delete."""

    def of(self, vector: DeletionVector) -> BitMap64:
        return self.of_id(vector.unique_id)

    def of_id(self, vector_id: str) -> BitMap64:
        return BitMap64(int(digit) for digit in vector_id.rsplit("@", 1)[1])


def file(path: str, deleted: str = "", tags: dict[str, str] | None = None) -> Add:
    stats = json.dumps({"numRecords": COUNTS.get(path, 1)})
    gone = None
    if deleted:
        gone = replace(vector(offset=int(deleted)), cardinality=len(deleted))
    return add(path, vector=gone, stats=stats, tags=tags)


A, B = file("a"), file("b")


def table(configuration: dict[str, str] = ON) -> LogOf:
    return LogOf().create(A, B, configuration=configuration, protocol=PROTOCOL)


def made_of(source: str, *rows: int | None, is_update: bool = True) -> Origins:
    return Origins(
        sources=(source,),
        files=np.array([NO_FILE if row is None else 0 for row in rows], np.int32),
        rows=np.array([row or 0 for row in rows], np.int64),
        is_update=is_update,
    )


def change(
    transaction: TableTransaction,
    before: Sequence[Add],
    after: Sequence[Add],
    **origins: Origins,
) -> None:
    removes = [one.tombstone(timestamp_ms=1) for one in before]
    transaction.stage([*removes, *after], operation="UPDATE", origins=origins)


def pack(transaction: TableTransaction, *sources: Add, into: str = "c", told: bool = True) -> None:
    """Packs whole files into one, recording their order or not."""
    runs = [
        Source(path=one.path, vector_id=one.key[1], first=0, rows=_live(one)) for one in sources
    ]
    tags = {"txlake.sources": sources_text(runs)} if told else None
    removes = [replace(one.tombstone(timestamp_ms=1), data_change=False) for one in sources]
    packed = replace(file(into, tags=tags), data_change=False)
    transaction.stage([*removes, packed], operation="OPTIMIZE")


def _live(one: Add) -> int:
    vector = one.deletion_vector
    return count_rows(one) - (0 if vector is None else vector.cardinality)


def count_rows(one: Add) -> int:
    return COUNTS.get(one.path, 1)


def told(transaction: TableTransaction) -> list[Rows] | None:
    found = _rows(transaction.changes(Numbered(), count_rows))
    if has_feed(transaction.view) and has_feed(transaction.base):
        _check_as_line(transaction, found)
    return found


def _rows(changes: Sequence[ChangedRows] | None) -> list[Rows] | None:
    if changes is None:
        return None
    return sorted((one.file.path, one.change_type, list(one.positions)) for one in changes)


STAGED: list[tuple[Sequence[Action], Mapping[str, Origins]]] = []


@pytest.fixture(autouse=True)
def _staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps what the statements of a transaction stage."""
    stage = TableTransaction.stage

    def kept(self: TableTransaction, actions: Sequence[Action], **about: Any) -> None:
        if not self.has_changes:
            STAGED.clear()
        stage(self, actions, **about)
        STAGED.append((actions, about.get("origins") or {}))

    monkeypatch.setattr(TableTransaction, "stage", kept)


def _check_as_line(transaction: TableTransaction, expected: list[Rows] | None) -> None:
    """Commits with these statements, published as one, have the changes of the transaction."""
    base, head = transaction.base, transaction.base
    commits: list[Commit] = []
    for actions, origins in STAGED:
        info = CommitInfo({"tags": row_sources_tag(origins)})
        commits.append(Commit(base.version + len(commits) + 1, tuple(actions), info, 0))
        head = head.apply(actions)
    known = known_sources(base, commits)
    assert not known.has_gaps
    net = net_actions(base, head, [one.actions for one in commits], timestamp_ms=1)
    staged = StagedChanges().then(net, base.files)
    for row_sources in (known.row_sources, without_vectors(known.row_sources, Numbered())):
        found = _rows(net_changes(staged, base.files, row_sources, Numbered(), count_rows))
        assert found == expected


UPDATED = [("b", "update_preimage", [1]), ("f", "update_postimage", [0])]


def updated(transaction: TableTransaction) -> None:
    change(transaction, [B], [file("b", "1"), file("f")], f=made_of("b", 1))


def test_an_update() -> None:
    transaction = begin(table())
    updated(transaction)
    assert told(transaction) == UPDATED


def test_no_feed_no_changes() -> None:
    transaction = begin(table(OFF))
    updated(transaction)
    assert told(transaction) is None
    assert not transaction.savepoint().row_sources


def test_a_feed_that_is_turned_off() -> None:
    transaction = begin(table())
    updated(transaction)
    transaction.stage([metadata(OFF)], operation="SET TBLPROPERTIES")
    assert told(transaction) is None


def test_of_two_updates_the_first_and_the_last_image() -> None:
    transaction = begin(table())
    updated(transaction)
    change(transaction, [file("f")], [file("g")], g=made_of("f", 0))
    assert told(transaction) == [UPDATED[0], ("g", "update_postimage", [0])]


def test_an_image_that_is_deleted_again() -> None:
    """Then the vector of its former file tells all of it."""
    transaction = begin(table())
    updated(transaction)
    change(transaction, [file("f")], [])
    assert told(transaction) is None


def test_a_row_that_came_and_changed_only_came() -> None:
    transaction = begin(table())
    change(transaction, [], [file("d")])
    change(transaction, [file("d")], [file("d", "1"), file("f")], f=made_of("d", 1))
    assert told(transaction) is None
    updated_too = [file("b", "1"), file("g")]
    change(transaction, [B], updated_too, g=made_of("b", 1))
    assert told(transaction) == [
        ("b", "update_preimage", [1]),
        ("d", "insert", [0]),
        ("f", "insert", [0]),
        ("g", "update_postimage", [0]),
    ]


def test_copied_rows_arent_told() -> None:
    transaction = begin(table())
    change(transaction, [A], [file("e")], e=made_of("a", 0, 2, 3, is_update=False))
    assert told(transaction) == [("a", "delete", [1])]


def test_a_changed_row_stays_changed_when_it_is_copied() -> None:
    transaction = begin(table())
    updated(transaction)
    change(transaction, [file("f")], [file("g")], g=made_of("f", 0, is_update=False))
    assert told(transaction) == [UPDATED[0], ("g", "update_postimage", [0])]


def test_rows_of_both_kinds_in_one_file() -> None:
    """As a MERGE writes them: images, and rows that are new."""
    transaction = begin(table())
    change(transaction, [A], [file("a", "23"), file("e")], e=made_of("a", 3, None, 2))
    assert told(transaction) == [
        ("a", "update_preimage", [2, 3]),
        ("e", "insert", [1]),
        ("e", "update_postimage", [0, 2]),
    ]


def test_through_a_packed_file() -> None:
    transaction = begin(table())
    pack(transaction, A, B)
    change(
        transaction, [replace(file("c"), tags=None)], [file("c", "5"), file("f")], f=made_of("c", 5)
    )
    assert told(transaction) == UPDATED


def test_through_a_file_packed_of_what_was_left() -> None:
    start = LogOf().create(file("a", "20"), B, configuration=ON, protocol=PROTOCOL)
    transaction = begin(start)
    pack(transaction, file("a", "20"), B, into="h")
    change(transaction, [file("h")], [file("h", "1"), file("f")], f=made_of("h", 1))
    assert told(transaction) == [("a", "update_preimage", [3]), ("f", "update_postimage", [0])]


def test_through_a_sorted_file() -> None:
    """Rows 1 and 3 of a, then b, then the others of a."""
    runs = [
        Source(path="a", vector_id=None, first=0, rows=2, positions_id="x@13"),
        Source(path="b", vector_id=None, first=0, rows=3),
        Source(path="a", vector_id=None, first=0, rows=2, positions_id="x@02"),
    ]
    transaction = begin(table())
    removes = [replace(one.tombstone(timestamp_ms=1), data_change=False) for one in (A, B)]
    packed = replace(file("c", tags={"txlake.sources": sources_text(runs)}), data_change=False)
    transaction.stage([*removes, packed], operation="OPTIMIZE")
    change(
        transaction,
        [replace(file("c"), tags=None)],
        [file("c", "136"), file("e")],
        e=made_of("c", 1, 3, 6),
    )
    assert told(transaction) == [
        ("a", "update_preimage", [2, 3]),
        ("b", "update_preimage", [1]),
        ("e", "update_postimage", [0, 1, 2]),
    ]


def test_turned_on_after_the_packing() -> None:
    transaction = begin(table(OFF))
    pack(transaction, A, B)
    transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")
    change(transaction, [file("c")], [file("c", "5"), file("f")], f=made_of("c", 5))
    assert told(transaction) == UPDATED


def test_turned_on_after_new_rows_were_packed_with_others() -> None:
    transaction = begin(table(OFF))
    change(transaction, [], [file("d")])
    pack(transaction, A, file("d"), into="k")
    transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")
    assert told(transaction) == [("k", "insert", [4, 5])]


def test_statements_that_come_to_nothing() -> None:
    """The row that was packed with others is deleted again; the others have only moved."""
    log = table()
    transaction = begin(log)
    change(transaction, [], [file("d")])
    pack(transaction, A, file("d"), into="k")
    change(transaction, [file("k")], [file("k", "45")])
    assert told(transaction) == []
    transaction.mark_rows_unchanged()
    assert not transaction.part_summary.footprint.changes_data
    transaction.commit()
    files = [one for one in actions_at(log, 1) if isinstance(one, Add | Remove)]
    assert [(one.path, one.data_change) for one in files] == [("a", False), ("k", False)]
    with pytest.raises(InvalidRequest, match="was committed already"):
        transaction.mark_rows_unchanged()


def test_new_statistics_move_no_rows() -> None:
    """Of a file of the transaction's own either, which no tag says anything of."""
    transaction = begin(table())
    change(transaction, [], [file("d")])
    transaction.stage([replace(file("d"), size=11, data_change=False)], operation="COMPUTE STATS")
    change(transaction, [file("d")], [file("d", "1"), file("f")], f=made_of("d", 1))
    assert told(transaction) is None


def test_an_order_that_nobody_recorded() -> None:
    transaction = begin(table())
    pack(transaction, A, B, told=False)
    assert told(transaction) is None
    change(transaction, [], [file("d")])
    assert told(transaction) is None
    with pytest.raises(InvalidRequest, match="in an order that isn't recorded"):
        change(transaction, [file("c")], [file("c", "1")])
    transaction = begin(table())
    updated(transaction)
    with pytest.raises(InvalidRequest, match="in an order that isn't recorded"):
        pack(transaction, A, file("f"), told=False)
    pack(transaction, A, file("f"), into="h")
    assert told(transaction) == [UPDATED[0], ("h", "update_postimage", [4])]


def test_changes_from_before_it_was_turned_on() -> None:
    transaction = begin(table(OFF))
    updated(transaction)
    with pytest.raises(InvalidRequest, match="can't be turned on after rows were changed"):
        transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")
    transaction = begin(table(OFF))
    change(transaction, [A], [])
    change(transaction, [], [file("d")])
    with pytest.raises(InvalidRequest, match="can't be turned on after rows were changed"):
        transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")
    for before, after in (([A], []), ([], [file("d")])):
        transaction = begin(table(OFF))
        change(transaction, before, after)
        transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")


@pytest.mark.parametrize("name", ["numAddedChangeFiles", "numTargetChangeFilesAdded"])
def test_change_files_are_counted_and_committed(name: str) -> None:
    log = table()
    transaction = begin(log)
    transaction.stage([file("d")], operation="MERGE", metrics={name: 0, "numOutputRows": 2})
    change_file = Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)
    transaction.add_change_files([change_file])
    transaction.commit()
    assert info_at(log, 1)["operationMetrics"] == {name: "1", "numOutputRows": "2"}
    assert [action for action in actions_at(log, 1) if isinstance(action, Cdc)] == [change_file]
    with pytest.raises(InvalidRequest):
        transaction.add_change_files([change_file])
