"""A stream's offset in a table: the next file to read.

Owns the offset's fields and their JSON in a query's checkpoint. Everything before an offset has
been read, nothing from there on. Each position has only one offset: the position after a version's
last file is the first file of the next version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from txlake.errors import InvalidRequest
from txlake.session.branch_use import BranchMark

_FORMAT, _FORMAT_ON_BRANCH = 1, 2
_IS_FEED = "readsChangeFeed"
_BRANCH_ID, _BRANCH_NAME = "branchId", "branchName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The next file of a table that a stream reads.

    Attributes:
        table_id: the id of the table's metadata.
        version: the table's version.
        index: the file's position among those of the version, see `Source`.
        is_initial: whether `index` counts the files of the whole table at the version; otherwise
            those that its commit added.
        began: the version at which the stream began, and whether with the whole table.
        is_feed: whether the stream reads the change feed; otherwise new rows.
        branch: the branch whose versions they are; None for main's.
    """

    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    began: tuple[int, bool]
    is_feed: bool = False
    branch: BranchMark | None = None

    @classmethod
    def first(
        cls,
        table_id: str,
        version: int,
        *,
        is_initial: bool,
        is_feed: bool = False,
        branch: BranchMark | None = None,
    ) -> Offset:
        """Return the offset at which a stream begins: with the whole table at the version
        (`is_initial`), or with the version's commit.
        """
        return cls(
            table_id=table_id,
            version=version,
            is_initial=is_initial,
            began=(version, is_initial),
            is_feed=is_feed,
            branch=branch,
        )

    @property
    def place(self) -> tuple[int, int]:
        """The sort key of one stream's offsets."""
        return (self.version, self.index)

    @property
    def last_version(self) -> int:
        """The newest version that has been read, at least in part, or is about to be."""
        return self.version if self.index or self.is_initial else self.version - 1

    def next_version(self) -> Offset:
        """Return the offset of the first file of the next version's commit."""
        return replace(self, version=self.version + 1, index=0, is_initial=False)

    def after_files(self, number: int) -> Offset:
        """Return the offset after `number` more files."""
        return replace(self, index=self.index + number)

    def beginning(self) -> Offset:
        """Return the offset at which this offset's stream began."""
        version, is_initial = self.began
        return Offset.first(
            self.table_id,
            version,
            is_initial=is_initial,
            is_feed=self.is_feed,
            branch=self.branch,
        )

    def to_json(self) -> dict[str, object]:
        """Return the offset as JSON for the checkpoint, with keys in a fixed order."""
        version, is_initial = self.began
        fields: dict[str, object] = {
            "format": _FORMAT if self.branch is None else _FORMAT_ON_BRANCH,
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isInitialSnapshot": self.is_initial,
            "beganAtVersion": version,
            "beganWithSnapshot": is_initial,
        }
        if self.is_feed:
            fields[_IS_FEED] = True
        if self.branch is not None:
            fields |= {_BRANCH_ID: self.branch.id, _BRANCH_NAME: self.branch.name}
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Offset:
        """Read an offset from a checkpoint. Raises InvalidRequest for any other JSON."""
        match fields:
            case {
                "format": 1 | 2 as form,
                "tableId": str(table_id),
                "version": int(version),
                "index": int(index),
                "isInitialSnapshot": bool(is_initial),
                "beganAtVersion": int(began_at),
                "beganWithSnapshot": bool(began_with),
            } if (form == _FORMAT_ON_BRANCH) is (_BRANCH_ID in fields):
                branch = None
                if form == _FORMAT_ON_BRANCH:
                    branch = BranchMark(str(fields[_BRANCH_ID]), str(fields.get(_BRANCH_NAME)))
                return cls(
                    table_id=table_id,
                    version=version,
                    index=index,
                    is_initial=is_initial,
                    began=(began_at, began_with),
                    is_feed=fields.get(_IS_FEED) is True,
                    branch=branch,
                )
        raise InvalidRequest(
            f"the stream's checkpoint has the offset {dict(fields)}: expected one of txlake's "
            f"source in format {_FORMAT} or {_FORMAT_ON_BRANCH}. It is another source's, or a "
            "newer txlake's; start the query with the program that made it, or with a new "
            "checkpointLocation"
        )
