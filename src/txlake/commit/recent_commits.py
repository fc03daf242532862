"""A log's newest commits in memory, as the conflict checks see them.

Owns which of them are kept. Each is decoded and summarised once for all transactions that share
the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txlake.conflict.concurrent_commit import ConcurrentCommit, summarise
from txlake.protocol.actions import Action

_COMMITS_MAX = 128
_ACTIONS_MAX = 8_192
_ACTIONS_OF_ONE_MAX = 1_024


@dataclass(slots=True, kw_only=True)
class RecentCommit:
    """A commit that was read; `timestamp_ms` as that of `table_log.Commit`."""

    version: int
    actions: tuple[Action, ...]
    timestamp_ms: int
    _summary: ConcurrentCommit | None = None

    @property
    def summary(self) -> ConcurrentCommit:
        """The commit as a winner. Two threads may both make it, which is the same value."""
        if self._summary is None:
            self._summary = summarise(self.version, self.actions, self.timestamp_ms)
        return self._summary


class RecentCommits:
    """Up to 128 commits of one log, the newest ones that were read. Threads may share it.

    Commits with more than 1,024 actions aren't kept, and of all kept commits no more than 8,192.
    """

    def __init__(self) -> None:
        self._commits: Mapping[int, RecentCommit] = {}  # replaced, never changed

    def add(self, commits: Iterable[RecentCommit]) -> None:
        """Keep these commits, in place of older ones."""
        new = {one.version: one for one in commits if len(one.actions) <= _ACTIONS_OF_ONE_MAX}
        every = {**self._commits, **new}
        kept: dict[int, RecentCommit] = {}
        actions = 0
        for version in sorted(every, reverse=True)[:_COMMITS_MAX]:
            actions += len(every[version].actions)
            if actions > _ACTIONS_MAX:
                break
            kept[version] = every[version]
        self._commits = kept

    def summary(self, version: int) -> ConcurrentCommit | None:
        """Return a commit as a winner; None if it isn't kept."""
        known = self._commits.get(version)
        return None if known is None else known.summary

    def clear(self) -> None:
        """Drop all commits: the log may be another one now."""
        self._commits = {}
