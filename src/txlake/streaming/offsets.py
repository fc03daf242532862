"""Where a stream stands in a table: the next file to read.

Owns the offset's fields and their JSON in a query's checkpoint. Everything before an offset was
read, nothing from it on. Equal places have equal offsets: one past the last file of a version is
the first file of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from txlake.errors import InvalidRequest

_FORMAT = 1
_IS_FEED = "readsChangeFeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The next file of a table that a stream reads.

    Attributes:
        table_id: the id of the table's metadata.
        version: the table's version.
        index: the file's place among those of the version, see `Source`.
        is_initial: whether the files are those of the whole table at the version; otherwise those
            that its commit added.
        began: the version at which the stream began, and whether with the whole table.
        is_feed: whether the files are those that tell of changes; otherwise those with new rows.
    """

    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    began: tuple[int, bool]
    is_feed: bool = False

    @classmethod
    def first(
        cls, table_id: str, version: int, *, is_initial: bool, is_feed: bool = False
    ) -> Offset:
        """Where a stream begins."""
        return cls(
            table_id=table_id,
            version=version,
            is_initial=is_initial,
            began=(version, is_initial),
            is_feed=is_feed,
        )

    @property
    def place(self) -> tuple[int, int]:
        """What orders the offsets of one stream."""
        return (self.version, self.index)

    @property
    def last_version(self) -> int:
        """The newest version that was read, or is read next in parts."""
        return self.version if self.index or self.is_initial else self.version - 1

    def next_version(self) -> Offset:
        """The first file of the commit after this one's version."""
        return replace(self, version=self.version + 1, index=0, is_initial=False)

    def after_files(self, number: int) -> Offset:
        """The place after so many files more."""
        return replace(self, index=self.index + number)

    def beginning(self) -> Offset:
        """Where the stream began that has come to this offset."""
        version, is_initial = self.began
        return Offset.first(self.table_id, version, is_initial=is_initial, is_feed=self.is_feed)

    def to_json(self) -> dict[str, object]:
        """The offset as Spark keeps it, always in one order."""
        version, is_initial = self.began
        found: dict[str, object] = {
            "format": _FORMAT,
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isInitialSnapshot": self.is_initial,
            "beganAtVersion": version,
            "beganWithSnapshot": is_initial,
        }
        if self.is_feed:
            found[_IS_FEED] = True
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, object]) -> Offset:
        """The offset that Spark kept. Raises InvalidRequest for anything else."""
        match found:
            case {
                "format": 1,
                "tableId": str(table_id),
                "version": int(version),
                "index": int(index),
                "isInitialSnapshot": bool(is_initial),
                "beganAtVersion": int(began_at),
                "beganWithSnapshot": bool(began_with),
            }:
                return cls(
                    table_id=table_id,
                    version=version,
                    index=index,
                    is_initial=is_initial,
                    began=(began_at, began_with),
                    is_feed=found.get(_IS_FEED) is True,
                )
        raise InvalidRequest(
            f"the stream's checkpoint has the offset {dict(found)}: expected one of txlake's "
            f"source in format {_FORMAT}. It is another source's, or a newer txlake's; start the "
            "query with the program that made it, or with a new checkpointLocation"
        )
