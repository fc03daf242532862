"""The actions that lead from one version of a table to a later one, as one commit.

Owns which files, settings, application ids and domains differ, and which of the files hold rows
that were changed. What a commit assigns is left to it: commit versions of rows, in-commit
timestamps, commitInfo.
Source: PROTOCOL.md, "Action Reconciliation", "Add File and Remove File" (`dataChange`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from txlake.errors import InvalidRequest
from txlake.log.files import Files, canonical_path
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import Action, Add, DomainMetadata, Remove
from txlake.protocol.sources import SOURCES_TAG, parse_sources


def net_actions(
    base: Snapshot,
    head: Snapshot,
    commits: Iterable[Sequence[Action]] | None,
    *,
    timestamp_ms: int,
) -> tuple[Action, ...]:
    """Return the actions that lead from `base` to `head`, in the order in which a commit lists
    actions; none for equal versions.

    `commits` are the actions of all commits between the two, in order. They say which files only
    hold rows that were moved there (`dataChange` false), and the cost depends on them alone. With
    None every file of the two versions is compared, and each that came or went counts as a change
    of data.

    Files that came and went in between are left out. A file that stays keeps its row ids, and is
    listed again if anything else differs. New files have those of `head`, but no commit version,
    which the commit assigns. `timestamp_ms` becomes the removed files' deletion time.
    """
    lineage = None if commits is None else Lineage(base.files, commits)
    paths = _all_paths(base, head) if lineage is None else lineage.paths
    removed: list[Remove] = []
    added: list[Add] = []
    for path in paths:
        before, after = base.files.by_path(path), head.files.by_path(path)
        changes_data = lineage is None or lineage.changes_data(path)
        stays = before is not None and after is not None and _vector(before) == _vector(after)
        if before is not None and not stays:
            removed.append(before.tombstone(timestamp_ms=timestamp_ms, data_change=changes_data))
        if after is None:
            continue
        listed = _with_row_ids_of(before, after) if _tracks_rows(head) else after
        if before is None or not _is_listed_as(before, listed):
            added.append(msgspec.structs.replace(listed, data_change=changes_data and not stays))
    return (*_settings(base, head), *removed, *added)


class Lineage:
    """Which files of a line of commits share rows, and which of them hold changed rows.

    Files are linked where a commit moved rows from one to the other. If rows of any linked file
    were added or deleted, all of them change data: rows that only moved can't be told from the
    others by their files.
    """

    def __init__(self, base: Files, commits: Iterable[Sequence[Action]]) -> None:
        self._base = base
        self._live: dict[str, bool] = {}  # whether files that were listed so far are live
        self._links: dict[str, str] = {}
        self._changed: set[str] = set()
        for actions in commits:
            self._follow(actions)
        self._changed_groups = {self._group(path) for path in self._changed}

    @property
    def paths(self) -> tuple[str, ...]:
        """Canonical paths of all files that the commits list, in order."""
        return tuple(self._live)

    def changes_data(self, path: str) -> bool:
        """Return whether the file at a canonical path, or one that it shares rows with, has rows
        that were added or deleted.
        """
        return self._group(path) in self._changed_groups

    def _follow(self, actions: Sequence[Action]) -> None:
        """Take in the next commit."""
        removed = {canonical_path(one.path): one for one in actions if isinstance(one, Remove)}
        added = {canonical_path(one.path): one for one in actions if isinstance(one, Add)}
        sources: set[str] = set()
        outputs: dict[str, Add] = {}
        for path, remove in removed.items():
            if remove.data_change:
                self._changed.add(path)
            elif path not in added:
                sources.add(path)
        for path, add in added.items():
            if path not in removed and self._is_live(path):
                continue
            if add.data_change:
                self._changed.add(path)
            elif path not in removed:
                outputs[path] = add
        self._link(sources, outputs)
        self._live |= {**dict.fromkeys(removed, False), **dict.fromkeys(added, True)}

    def _is_live(self, path: str) -> bool:
        known = self._live.get(path)
        return self._base.by_path(path) is not None if known is None else known

    def _link(self, sources: set[str], outputs: dict[str, Add]) -> None:
        """Link the outputs of a rewrite with the sources that they record; with all sources of the
        commit if some of these are recorded by none.
        """
        recorded = {path: _sources_of(output) for path, output in outputs.items()}
        known = [paths for paths in recorded.values() if paths is not None]
        is_whole = sources <= frozenset[str]().union(*known)
        for path, own in recorded.items():
            for source in own if own is not None and is_whole else sources:
                self._links[self._group(source)] = self._group(path)

    def _group(self, path: str) -> str:
        """Return the path that stands for all files that are linked with this one."""
        while (above := self._links.get(path, path)) != path:
            path = above
        return path


def _all_paths(base: Snapshot, head: Snapshot) -> Iterator[str]:
    """Return the canonical paths of the files of both versions, once each."""
    every = (file.path for one in (base, head) for file in one.files.adds())
    return iter(dict.fromkeys(map(canonical_path, every)))


def _vector(file: Add | Remove) -> str | None:
    """Return the id of the file's deletion vector, if it has one."""
    return file.key[1]


def _tracks_rows(head: Snapshot) -> bool:
    return "rowTracking" in head.features


def _with_row_ids_of(before: Add | None, after: Add) -> Add:
    """Return a file with the row ids that it had; a new one without a commit version."""
    if before is None:
        return msgspec.structs.replace(after, default_row_commit_version=None)
    return msgspec.structs.replace(
        after,
        base_row_id=after.base_row_id if before.base_row_id is None else before.base_row_id,
        default_row_commit_version=before.default_row_commit_version,
    )


def _is_listed_as(before: Add, after: Add) -> bool:
    """Return whether two listings of one file say the same, whatever changed its rows."""
    return before == msgspec.structs.replace(
        after, path=before.path, data_change=before.data_change
    )


def _sources_of(output: Add) -> frozenset[str] | None:
    """Return the canonical paths of the files that a rewrite's output records its rows to come
    from; None if it records none.
    """
    text = (output.tags or {}).get(SOURCES_TAG) or ""
    try:
        return frozenset(canonical_path(source.path) for source in parse_sources(text))
    except InvalidRequest:
        return None


def _settings(base: Snapshot, head: Snapshot) -> Iterator[Action]:
    """Yield what differs apart from files: protocol, metadata, application ids, domains."""
    if head.protocol != base.protocol:
        yield head.protocol
    if head.metadata != base.metadata:
        yield head.metadata
    for app_id, txn in head.app_transactions.items():
        if base.app_transactions.get(app_id) != txn:
            yield txn
    for name, domain in head.domains.items():
        # The commit states the mark of the row ids that it assigns.
        if name != ROW_TRACKING_DOMAIN and base.domains.get(name) != domain:
            yield domain
    for name, domain in base.domains.items():
        if name not in head.domains:
            yield DomainMetadata(domain=name, configuration=domain.configuration, removed=True)
