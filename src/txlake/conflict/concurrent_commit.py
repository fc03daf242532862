"""A commit that came first, as the conflict rules see it.

Owns the reading of a committed list of actions: which rows it added, which it deleted, and which it
only moved. Source: PROTOCOL.md, "Add File and Remove File" (`dataChange`) and "Commit Provenance
Information".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from txlake.log.files import canonical_key, canonical_path
from txlake.log.snapshot import ROW_TRACKING_DOMAIN
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)

READS_ELSEWHERE = "txlake.readsElsewhere"
"""The commitInfo tag of a blind append that read other tables: a JSON array of their ids."""

_NO_INFO = CommitInfo({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentCommit:
    """One committed version that the transaction did not read.

    Attributes:
        version: the committed version.
        timestamp_ms: the time of the commit, milliseconds since the epoch.
        operation: the operation that its commitInfo names.
        user: the user that its commitInfo names.
        txn_id: its commitInfo's `txnId`.
        info: its commitInfo; an empty one if it has none.
        is_blind_append: whether it only added rows and read nothing of this table, according to its
            commitInfo; False if the commitInfo doesn't say, or files were removed.
        reads_elsewhere: ids of other tables that it read, according to its commitInfo.
        added: the files that it lists as added.
        removed: the files that it lists as removed.
        metadata: the metadata that it sets.
        protocol: the protocol that it sets.
        app_ids: application ids that it sets.
        domains: names of the metadata domains that it sets, without the row id high-water mark.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    user: str | None = None
    txn_id: str | None = None
    info: CommitInfo = _NO_INFO
    is_blind_append: bool = False
    reads_elsewhere: frozenset[str] = frozenset()
    added: tuple[Add, ...] = ()
    removed: tuple[Remove, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    @property
    def features_used(self) -> frozenset[str]:
        """The table features that the files it adds and its domains make use of."""
        used = {
            "clustering": any(file.clustering_provider is not None for file in self.added),
            "deletionVectors": any(file.deletion_vector is not None for file in self.added),
            "domainMetadata": bool(self.domains),
            "rowTracking": any(file.base_row_id is not None for file in self.added),
        }
        return frozenset(name for name, is_used in used.items() if is_used)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """A winner's files, grouped by what happened to their rows.

    Attributes:
        added: files with new rows.
        maybe_added: files whose deletion vector was replaced by a larger one: rows were deleted,
            and only the vectors tell whether some were restored too.
        deleted: removed files with deleted rows.
        moved: removed files whose rows are all in other files now.
    """

    added: tuple[Add, ...] = ()
    maybe_added: tuple[Add, ...] = ()
    deleted: tuple[Remove, ...] = ()
    moved: tuple[Remove, ...] = ()


def summarise(
    version: int, actions: Sequence[Action], timestamp_ms: int | None = None
) -> ConcurrentCommit:
    """Return the winner that a committed list of actions describes.

    Without `timestamp_ms` its time is the commitInfo's `timestamp`, if it has one. Of several
    commitInfo, metaData or protocol actions the first counts. A commit that removes a file isn't a
    blind append, whatever its commitInfo says.
    """
    info = next((action for action in actions if isinstance(action, CommitInfo)), _NO_INFO)
    removed = tuple(action for action in actions if isinstance(action, Remove))
    domains = (action.domain for action in actions if isinstance(action, DomainMetadata))
    elsewhere = _read_elsewhere(info)
    is_blind = info.values.get("isBlindAppend") is True and not removed
    return ConcurrentCommit(
        version=version,
        timestamp_ms=info.number("timestamp") if timestamp_ms is None else timestamp_ms,
        operation=info.text("operation"),
        user=info.text("userName") or info.text("userId"),
        txn_id=info.text("txnId"),
        info=info,
        is_blind_append=is_blind and elsewhere is not None,
        reads_elsewhere=elsewhere or frozenset(),
        added=tuple(action for action in actions if isinstance(action, Add)),
        removed=removed,
        metadata=next((action for action in actions if isinstance(action, Metadata)), None),
        protocol=next((action for action in actions if isinstance(action, Protocol)), None),
        app_ids=frozenset(action.app_id for action in actions if isinstance(action, Txn)),
        domains=frozenset(domains) - {ROW_TRACKING_DOMAIN},
    )


def _read_elsewhere(info: CommitInfo) -> frozenset[str] | None:
    """Return the ids of other tables that the commitInfo names; None if the list can't be parsed.

    Empty if the commitInfo names none.
    """
    tags = info.values.get("tags")
    text = tags.get(READS_ELSEWHERE) if isinstance(tags, Mapping) else None
    if text is None:
        return frozenset()
    try:
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except (msgspec.DecodeError, TypeError):
        return None


def row_changes(winner: ConcurrentCommit, is_live: Callable[[FileKey], bool]) -> RowChanges:
    """Group a winner's files by what happened to their rows.

    `is_live` returns whether a logical file was in the table just before the winner: listing such a
    file again (new statistics, row ids) adds no row, nor does a file with `dataChange = false`.
    """
    removed = {canonical_path(file.path): file for file in winner.removed}
    listed = {canonical_key(file.key) for file in winner.added}
    added: list[Add] = []
    maybe_added: list[Add] = []
    for file in winner.added:
        if not file.data_change:
            continue
        before = removed.get(canonical_path(file.path))
        if before is None:
            if not is_live(file.key):
                added.append(file)
        elif before.deletion_vector is not None and before.key[1] != file.key[1]:
            (maybe_added if _vector_grew(before, file) else added).append(file)
    gone = [file for file in winner.removed if canonical_key(file.key) not in listed]
    return RowChanges(
        added=tuple(added),
        maybe_added=tuple(maybe_added),
        deleted=tuple(file for file in gone if file.data_change),
        moved=tuple(file for file in gone if not file.data_change),
    )


def _vector_grew(before: Remove, after: Add) -> bool:
    old, new = before.deletion_vector, after.deletion_vector
    return old is not None and new is not None and new.cardinality > old.cardinality
