"""Rules for commits that are to be ratified together: what they say of their transaction is true.

Owns what a catalog requires of the action `transactionGroup` of staged commits, by which a reader
or a clean-up finds the other commits of a transaction. Source: Delta's RFC of multi-table
transactions (delta-io/delta, pull request 7438), "The transactionGroup Action".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from txlake.protocol.actions import Action, TransactionGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedVersion:
    """A staged commit: the id of its table, the version that it proposes, and its actions."""

    table_id: str
    version: int
    actions: Sequence[Action]


def group_refusals(
    commits: Collection[StagedVersion], transaction_id: str | None
) -> Mapping[str, str]:
    """Return by table id why the commits can't be ratified together; {} if they can.

    `transaction_id`: the transaction that the request names. With one, each commit has to have a
    group of that id. Without one the commits may have no group; if one has it, all do, and the same
    one. A group's participants are just the commits that are ratified together.
    """
    groups = {one.table_id: _groups(one.actions) for one in commits}
    ratified = frozenset((one.table_id, one.version) for one in commits)
    known = next((group for found in groups.values() for group in found), None)
    wanted = transaction_id if known is None else transaction_id or known.transaction_id
    refusals: dict[str, str] = {}
    for table_id, found in groups.items():
        reason = _refusal(found, wanted, None if known is None else known.catalog, ratified)
        if reason is not None:
            refusals[table_id] = reason
    return refusals


def same_transaction(one: Sequence[Action], other: Sequence[Action]) -> bool:
    """Return whether two commits are of one transaction over several tables, with the same
    participants.
    """
    match _groups(one), _groups(other):
        case [first], [second]:
            return (
                first.transaction_id is not None
                and first.participants is not None
                and first.transaction_id == second.transaction_id
                and first.participants == second.participants
            )
        case _:
            return False


def _groups(actions: Sequence[Action]) -> list[TransactionGroup]:
    return [action for action in actions if isinstance(action, TransactionGroup)]


def _refusal(
    groups: Sequence[TransactionGroup],
    wanted: str | None,
    catalog: str | None,
    ratified: frozenset[tuple[str, int]],
) -> str | None:
    """Return why a commit with these groups can't be one of the transaction `wanted`, None for no
    transaction, whose commits are `ratified`; None if it can.
    """
    if not groups and wanted is None:
        return None
    if len(groups) != 1:
        return f"expected one transactionGroup, of transaction {wanted!r:.80}; found {len(groups)}"
    [group] = groups
    participants = group.participants
    if group.transaction_id is None or group.catalog is None or participants is None:
        return (
            "transactionGroup: expected transactionId, coordinatingCatalog and participants, each "
            f"with tableId and proposedVersion; found {group.values!r:.200}"
        )
    if group.transaction_id != wanted:
        return f"its transactionGroup is of {group.transaction_id!r:.80}, not of {wanted!r:.80}"
    if group.catalog != catalog:
        return f"its coordinatingCatalog is {group.catalog!r:.80}, another commit's {catalog!r:.80}"
    if participants != ratified:
        return (
            f"its transactionGroup has the participants {_listed(participants)}, and the commits "
            f"to ratify together are {_listed(ratified)}"
        )
    return None


def _listed(versions: Collection[tuple[str, int]]) -> str:
    return ", ".join(f"{table} at version {version}" for table, version in sorted(versions))
