"""The net actions of a transaction's statements, for one commit.

A file that one statement adds and a later one removes never reaches the log. All states are
immutable values; an earlier one can be restored (savepoints).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from txlake.log.files import Files
from txlake.protocol.actions import (
    Action,
    Add,
    Cdc,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChanges:
    """The net changes of the statements so far, relative to the snapshot that was read.

    Attributes:
        added: files to add, by key.
        removed: files of the snapshot to remove, by key.
        metadata: the metadata to set.
        protocol: the protocol to set.
        app_transactions: application ids to set.
        domains: metadata domains to set.
        change_files: change data files to add.
        rows_moved_on: whether a statement moved rows (`dataChange = false`) that another statement
            wrote or deleted, so that no file of the commit is a mere rewrite any more.
    """

    added: Mapping[FileKey, Add] = field(default_factory=dict)
    removed: Mapping[FileKey, Remove] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    app_transactions: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    change_files: tuple[Cdc, ...] = ()
    rows_moved_on: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to commit."""
        return not (
            self.added
            or self.removed
            or self.metadata is not None
            or self.protocol is not None
            or self.app_transactions
            or self.domains
            or self.change_files
        )

    def then(self, actions: Iterable[Action], files: Files) -> StagedChanges:
        """Return the net changes after one more statement.

        `files`: those of the snapshot that was read. Of two settings of one thing the later counts.
        A file that is removed and listed again with the same key stays where it is.
        """
        added, removed = dict(self.added), dict(self.removed)
        transactions, domains = dict(self.app_transactions), dict(self.domains)
        metadata, protocol = self.metadata, self.protocol
        changes = list(self.change_files)
        moved_on = self.rows_moved_on
        files_to_add: list[Add] = []
        for action in actions:
            match action:
                case Add():
                    files_to_add.append(action)  # once everything is removed
                case Remove():
                    own = added.pop(action.key, None)
                    if own is not None and own.data_change != action.data_change:
                        moved_on = True
                    if own is None or action.key in files:
                        removed.setdefault(action.key, action)
                case Metadata():
                    metadata = action
                case Protocol():
                    protocol = action
                case Txn():
                    transactions[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
                case Cdc():
                    changes.append(action)
                case _:
                    pass
        for file in files_to_add:
            if removed.pop(file.key, None) is not None:
                file = msgspec.structs.replace(file, data_change=False)
                if _is_unchanged(file, files):
                    continue
            added[file.key] = file
        return StagedChanges(
            added=added,
            removed=removed,
            metadata=metadata,
            protocol=protocol,
            app_transactions=transactions,
            domains=domains,
            change_files=tuple(changes),
            rows_moved_on=moved_on,
        )

    def without_data_change(self) -> StagedChanges:
        """Return the same files with `dataChange = false`: rows were only moved."""
        return replace(
            self,
            added={
                key: msgspec.structs.replace(file, data_change=False)
                for key, file in self.added.items()
            },
            removed={
                key: msgspec.structs.replace(file, data_change=False)
                for key, file in self.removed.items()
            },
            rows_moved_on=False,
        )

    @property
    def added_files(self) -> tuple[Add, ...]:
        """The files to add, in the order in which they were staged."""
        files = tuple(self.added.values())
        if not self.rows_moved_on:
            return files
        return tuple(msgspec.structs.replace(file, data_change=True) for file in files)

    @property
    def removed_files(self) -> tuple[Remove, ...]:
        """The files to remove, in the order in which they were staged."""
        files = tuple(self.removed.values())
        if not self.rows_moved_on:
            return files
        return tuple(msgspec.structs.replace(file, data_change=True) for file in files)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All of it, in the order in which a commit lists actions."""
        settings = [action for action in (self.protocol, self.metadata) if action is not None]
        return (
            *settings,
            *self.app_transactions.values(),
            *self.domains.values(),
            *self.removed_files,
            *self.added_files,
            *self.change_files,
        )


def _is_unchanged(file: Add, base: Files) -> bool:
    """Return whether the snapshot that was read has the file, listed as it is now."""
    before = base.get(file.key)
    return before is not None and before == msgspec.structs.replace(
        file, data_change=before.data_change
    )
