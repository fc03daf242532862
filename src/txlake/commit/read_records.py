"""Records of what the commits on a branch read, by which publishing the branch is checked.

The branch of a lake has them in the catalog. The commits of a path table's branch have their own in
the tags of their commitInfo: what a commit has read is there from the instant that the commit is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txlake.commit.branch_store import BranchStore
from txlake.commit.rebase import Proposal
from txlake.commit.table_log import Commit, TableLog
from txlake.conflict.footprint import Read, ReadKind
from txlake.conflict.levels import Level
from txlake.conflict.read_set import ReadSet
from txlake.conflict.read_set_codec import encode_read_set
from txlake.log.predicates import Always
from txlake.ports import ReadRecord
from txlake.protocol.branching import LEVEL, READS

_OF_NO_ROWS = Read(predicate=Always(False), kind=ReadKind.PLAIN)


def read_record(proposal: Proposal) -> ReadRecord:
    """Return what a proposal read that has to stay true at its level.

    Of other reads remains that there were some: what read a table is no blind append to it.
    """
    footprint, level = proposal.footprint, proposal.level
    checked = footprint.reads_checked_at(level)
    if len(checked) < len(footprint.reads):
        checked += (_OF_NO_ROWS,)
    read = replace(ReadSet.of(footprint), reads=checked)
    return ReadRecord(encode_read_set(read, proposal.base), level.value)


def read_tags(log: TableLog, proposal: Proposal) -> Mapping[str, str]:
    """Return the tags with what a commit on a path table's branch read; none on main."""
    if not isinstance(log.store, BranchStore):
        return {}
    made = read_record(proposal)
    return {READS: made.record, LEVEL: made.level}


def records_in(commits: Iterable[Commit]) -> tuple[ReadRecord | None, ...]:
    """Return the records in the commits of a path table's branch, in order.

    None for a commit that has none: another engine's.
    """
    return tuple(map(_record_in, commits))


def _record_in(commit: Commit) -> ReadRecord | None:
    tags = {} if commit.info is None else commit.info.values.get("tags")
    if not isinstance(tags, dict):
        return None
    record, level = tags.get(READS), tags.get(LEVEL)
    if not isinstance(record, str) or level not in {one.value for one in Level}:
        return None
    return ReadRecord(record, level, commit.version)
