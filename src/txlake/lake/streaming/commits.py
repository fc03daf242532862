"""The effect of a commit on a streaming source: new rows, nothing, or an error.

Owns which commits a source skips and which stop it, by its options. Decides without I/O.
Source: Delta Lake, "Table streaming reads and writes", "Ignore updates and deletes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlake.commit.table_log import Commit
from txlake.errors import InvalidRequest
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.options import SourceOptions
from txlake.protocol.actions import Action, Add, Cdc, CommitInfo, Remove

FileAction: TypeAlias = Add | Remove | Cdc


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are all in the same micro-batch, and the stream's offset after them.

    Attributes:
        files: empty at a version's end.
        commit: the commit that names the files; None for files of the initial snapshot.
    """

    files: tuple[FileAction, ...]
    after: Offset
    commit: Commit | None = None


def new_files(
    table: str, version: int, actions: Sequence[Action], options: SourceOptions
) -> list[Add]:
    """Return the files with a commit's new rows, in the order of the log.

    A file's position in the list depends on the commit alone, not on the options, unless they skip
    the whole commit: [] then. Raises InvalidRequest for a commit that deletes or changes rows,
    unless an option allows it.
    """
    added = [action for action in actions if isinstance(action, Add) and action.data_change]
    removed = [action for action in actions if isinstance(action, Remove) and action.data_change]
    if not removed:
        return added
    only_deletes = _only_deletes(added, removed)
    if options.skip_change_commits:
        return []
    if only_deletes and options.ignore_deletes:
        return []
    if options.ignore_changes:
        return added
    raise _changes_rows(table, version, actions, only_deletes=only_deletes)


def _only_deletes(added: Sequence[Add], removed: Sequence[Remove]) -> bool:
    """Return whether a commit only deleted rows.

    That is so if each added file existed before, and has more of its rows marked as deleted.
    """
    before = {file.path: _deleted_rows(file) for file in removed}
    return all(_deleted_rows(file) > before.get(file.path, _deleted_rows(file)) for file in added)


def _deleted_rows(file: Add | Remove) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def _changes_rows(
    table: str, version: int, actions: Sequence[Action], *, only_deletes: bool
) -> InvalidRequest:
    """Return the error for a commit that deletes rows, or with `only_deletes` false changes rows,
    with the ways to go on.
    """
    info = next((action for action in actions if isinstance(action, CommitInfo)), None)
    operation = (None if info is None else info.text("operation")) or "an unknown operation"
    kind = "DELTA_SOURCE_IGNORE_DELETE" if only_deletes else "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    what = "deleted" if only_deletes else "changed"
    ways = "skipChangeCommits=true leaves out such commits whole"
    if only_deletes:
        ways += ", ignoreDeletes=true those that only delete rows"
    ways += ", ignoreChanges=true reads the files that they wrote, unchanged rows included"
    return InvalidRequest(
        f"[{kind}] "
        f"{table}: version {version} ({operation}) {what} rows that the stream may have read, and "
        f"a stream of new rows can't tell of it. {ways}; or start a new query, with a new "
        f"checkpoint and startingVersion={version + 1}"
    )
