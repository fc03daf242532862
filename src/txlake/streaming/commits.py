"""What a commit means to a stream: new rows, nothing, or the end.

Owns which commits a source passes over and which stop it, by its options. Decides without I/O.
Source: Delta Lake, "Table streaming reads and writes", "Ignore updates and deletes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlake.errors import InvalidRequest
from txlake.protocol.actions import Action, Add, Cdc, CommitInfo, Remove
from txlake.streaming.offsets import Offset
from txlake.streaming.options import SourceOptions
from txlake.transaction.table_log import Commit

FileAction: TypeAlias = Add | Remove | Cdc


@dataclass(frozen=True, slots=True)
class Step:
    """Files that a micro-batch has all of or none, and where the stream stands after them.

    Attributes:
        files: none at a version's end.
        commit: that tells of them; None for files of the whole table.
    """

    files: tuple[FileAction, ...]
    after: Offset
    commit: Commit | None = None


def new_files(
    table: str, version: int, actions: Sequence[Action], options: SourceOptions
) -> list[Add]:
    """The files whose rows a commit brings, in the order of the log.

    A file's place in the list depends on the commit alone, whatever the options say, unless it is
    passed over whole. Raises InvalidRequest for a commit that changes rows, unless an option says
    what to do.
    """
    added = [one for one in actions if isinstance(one, Add) and one.data_change]
    removed = [one for one in actions if isinstance(one, Remove) and one.data_change]
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
    """Whether each added file was there, and has more of its rows marked as deleted."""
    before = {one.path: _deleted(one) for one in removed}
    return all(_deleted(one) > before.get(one.path, _deleted(one)) for one in added)


def _deleted(file: Add | Remove) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def _changes_rows(
    table: str, version: int, actions: Sequence[Action], *, only_deletes: bool
) -> InvalidRequest:
    info = next((one for one in actions if isinstance(one, CommitInfo)), None)
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
