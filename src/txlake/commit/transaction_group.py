"""What the commits of one transaction over several tables say of each other.

Owns the action `transactionGroup` and the tags of commitInfo beside it: when a commit has them, and
their removal from a commit that becomes one of another transaction. Source: Delta's RFC of
multi-table transactions (delta-io/delta, pull request 7438); docs/internals/catalog.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from txlake.commit.membership import membership_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, CommitInfo, TransactionGroup

GROUP = "txlake.transactionGroup"
"""The tag of a commit of a transaction over several tables.

JSON: the transaction's `id`, and in `tables` the ids of all that it gave a version at its instant.
"""

TRANSACTION_ID = "delta.multiTableTransaction.transactionId"
"""The RFC's tag: the transaction's id alone."""


def group_tags(transaction_id: str, table_ids: Collection[str]) -> dict[str, str]:
    """Return the tags of a commit that gives these tables versions; {} if it is one table."""
    if len(table_ids) < 2:
        return {}
    named = {"id": transaction_id, "tables": sorted(table_ids)}
    return {
        GROUP: json.dumps(named, separators=(",", ":"), ensure_ascii=False),
        TRANSACTION_ID: transaction_id,
    }


def transaction_group(
    transaction_id: str, tables: Mapping[str, Sequence[Snapshot]]
) -> TransactionGroup | None:
    """Return the action of a transaction that gives tables these versions, by table id.

    None if it is one table, or the tables don't name one lake as theirs.
    """
    if len(tables) < 2:
        return None
    versions = [(table_id, one) for table_id, made in tables.items() for one in made]
    memberships = (membership_of(one) for _, one in versions)
    lakes = {one.lake for one in memberships if one is not None}
    if len(lakes) != 1:
        return None
    participants = [(table_id, one.version) for table_id, one in versions]
    return TransactionGroup.of(transaction_id, participants, lakes.pop())


def with_group(actions: Sequence[Action], group: TransactionGroup | None) -> tuple[Action, ...]:
    """Return a commit's actions with the group after the commitInfo, which is the first."""
    return (*actions[:1], *([] if group is None else [group]), *actions[1:])


def without_group(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return a commit's actions without what they say of the transaction that it was part of."""
    return tuple(
        _without_tags(action) if isinstance(action, CommitInfo) else action
        for action in actions
        if not isinstance(action, TransactionGroup)
    )


def _without_tags(info: CommitInfo) -> CommitInfo:
    tags = info.values.get("tags")
    if not isinstance(tags, dict) or tags.keys().isdisjoint((GROUP, TRANSACTION_ID)):
        return info
    kept = {key: text for key, text in tags.items() if key not in (GROUP, TRANSACTION_ID)}
    return CommitInfo({**info.values, "tags": kept})
