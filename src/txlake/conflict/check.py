"""The check of one transaction against the winners, one after the other.

Owns the order of the work: unsupported protocols first, then the rules, then the rebase. The result
is a value; the caller decides what to do with it. Source: docs/how-a-commit-works.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Conflicted, NoConflict, Outcome, Rebased, conflict_from_finding
from txlake.conflict.footprint import Footprint, ReadKind
from txlake.conflict.metadata_rules import metadata_after
from txlake.conflict.metadata_updates import Clash
from txlake.conflict.row_rules import select_not_true
from txlake.conflict.rules import RULES, Rule
from txlake.protocol.features import check_writable


def check(
    footprint: Footprint,
    winner: ConcurrentCommit,
    context: CheckContext,
    rules: Sequence[Rule] = RULES,
) -> Outcome:
    """Return whether the transaction may still commit after this winner.

    Winners are checked in the order of their versions, each with the context that the check of the
    previous one returned, and the footprint of a `Rebased`. A transaction that changes nothing,
    here or in other tables, never conflicts. Raises UnsupportedFeature when the winner's protocol
    is one that txlake can't read or write.
    """
    if footprint.changes_nothing:
        return NoConflict(context=context.after(winner))
    _check_supported(winner, context)
    kept = footprint.without_stale_statistics(winner)
    for rule in rules:
        found = rule(kept, winner, context)
        if found is not None:
            return conflict_from_finding(found, rule.__name__, kept, winner, context)
    return _rebase(
        kept, winner, context, dropped_statistics=len(footprint.restated - kept.restated)
    )


def check_selects(
    footprint: Footprint, winners: Sequence[ConcurrentCommit], context: CheckContext
) -> Conflicted | None:
    """Return the first conflict of a winner with a SELECT of the transaction, under Serializable.

    None if there is none, at other levels, or if the transaction changes nothing. Called before
    every other rule, for every table that the transaction read: a transaction that fits into no
    serial order is reported as such, whatever else conflicts. Raises UnsupportedFeature as `check`.
    """
    has_selects = any(read.kind is ReadKind.PLAIN for read in footprint.reads)
    if footprint.changes_nothing or not has_selects:
        return None
    context.prefetch(winners)
    for winner in winners:
        _check_supported(winner, context)
        found = select_not_true(footprint, winner, context)
        if found is not None:
            return conflict_from_finding(
                found, select_not_true.__name__, footprint, winner, context
            )
        context = context.after(winner)
    return None


def check_all(
    footprint: Footprint,
    winners: Sequence[ConcurrentCommit],
    context: CheckContext,
    rules: Sequence[Rule] = RULES,
) -> NoConflict | Rebased | Conflicted:
    """Check the transaction against several winners in the order of their versions.

    Returns the first conflict. Otherwise the context is the one after the last winner, and a
    `Rebased` has what was adopted from all of them. Raises UnsupportedFeature as `check`.
    """
    adopted: tuple[str, ...] = ()
    context.prefetch(winners)
    for winner in winners:
        outcome = check(footprint, winner, context, rules)
        match outcome:
            case Conflicted():
                return outcome
            case Rebased():
                footprint = outcome.footprint
                adopted += outcome.adopted
        context = outcome.context
    if adopted:
        return Rebased(footprint=footprint, context=context, adopted=adopted)
    return NoConflict(context=context)


def _check_supported(winner: ConcurrentCommit, context: CheckContext) -> None:
    """Raise UnsupportedFeature if the winner sets a protocol that txlake can't read or write."""
    if winner.protocol is None:
        return
    check_writable(winner.protocol, winner.metadata or context.metadata, table=context.table)


def _rebase(
    footprint: Footprint,
    winner: ConcurrentCommit,
    context: CheckContext,
    *,
    dropped_statistics: int,
) -> NoConflict | Rebased:
    """Apply a winner's changes to the transaction: metadata, protocol, and rows of shared files.

    `dropped_statistics`: the number of files whose new statistics were dropped already. Row ids,
    commit versions and in-commit timestamps are assigned anew at every attempt, from the state that
    the attempt follows.
    """
    adopted: list[str] = []
    if winner.protocol is not None:
        adopted.append(f"the protocol of version {winner.version}")
    if winner.metadata is not None and winner.metadata != context.metadata:
        adopted.append(f"the metadata of version {winner.version}")
        ours = metadata_after(footprint, winner.metadata, context)
        footprint = replace(footprint, metadata=None if isinstance(ours, Clash) else ours)
    met = context.reconcile_rows(footprint, winner)
    if met is not None and met.carried:
        footprint = met.footprint
        adopted.append(f"the rows of version {winner.version} in {len(met.carried)} files")
    if dropped_statistics:
        adopted.append(f"the statistics of {dropped_statistics} files of version {winner.version}")
    after = context.after(winner)
    if not adopted:
        return NoConflict(context=after)
    return Rebased(footprint=footprint, context=after, adopted=tuple(adopted))
