"""The removes that a version still carries, read from the checkpoint only on first use.

Opening a snapshot costs nothing for them: checkpoints and VACUUM need them. Source: PROTOCOL.md,
"Add File and Remove File" (tombstones).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import TypeAlias

from txlake.log.files import canonical_key
from txlake.protocol.actions import FileKey, Remove

LoadRemoves: TypeAlias = Callable[[], Iterable[Remove]]

_OVERLAY_MIN = 2_048


class Tombstones(Mapping[FileKey, Remove]):
    """Removes by key; expired ones included, until a checkpoint leaves them out (`forget_until`).

    Otherwise immutable, and used by any thread.
    Reading may raise the loader's errors: CorruptTable when the checkpoint is damaged.
    """

    __slots__ = ("_all", "_changed", "_earlier", "_load")

    def __init__(
        self,
        load: LoadRemoves | None = None,
        *,
        earlier: Tombstones | None = None,
        changed: Mapping[FileKey, Remove | None] | None = None,
    ) -> None:
        self._load = load
        self._earlier = earlier
        self._changed: Mapping[FileKey, Remove | None] = changed or {}  # None: live again
        self._all: dict[FileKey, Remove] | None = None

    def apply(self, removes: Iterable[Remove], live_again: Iterable[FileKey]) -> Tombstones:
        """Return the tombstones after a commit; the cost depends on the commit alone.

        Files in `live_again` have none any more.
        """
        earlier, changed = self._earlier, self._changed
        # What was merged is read last: it is there before the rest is dropped.
        is_empty = self._load is None and earlier is None and not changed and not self._all
        change: dict[FileKey, Remove | None] = {}
        if not is_empty:
            change = {canonical_key(key): None for key in live_again}
        for remove in removes:
            change[canonical_key(remove.key)] = remove
        if not change:
            return self
        if self._all is not None or earlier is None or len(changed) > _OVERLAY_MIN:
            return Tombstones(earlier=self, changed=change)
        return Tombstones(earlier=earlier, changed={**changed, **change})

    @property
    def loaded_count(self) -> int:
        """The approximate number of the tombstones that were loaded already."""
        if self._all is not None:
            return len(self._all)
        return len(self._changed) + (0 if self._earlier is None else self._earlier.loaded_count)

    def _merged(self) -> dict[FileKey, Remove]:
        """Return all tombstones by key; reads the checkpoint's on first use, and raises its
        errors.
        """
        known = self._all
        if known is not None:
            return known
        merged: dict[FileKey, Remove] = {}
        chain: list[tuple[LoadRemoves | None, Mapping[FileKey, Remove | None]]] = []
        node: Tombstones | None = self
        while node is not None:
            load, earlier, changed = node._load, node._earlier, node._changed
            if node._all is not None:  # else another thread hadn't dropped the rest yet
                merged = dict(node._all)
                break
            chain.append((load, changed))
            node = earlier
        for load, changed in reversed(chain):
            if load is not None:
                for remove in load():
                    merged[canonical_key(remove.key)] = remove
            for key, change in changed.items():
                if change is None:
                    merged.pop(key, None)
                else:
                    merged[key] = change
        self._set(merged)
        return merged

    def removed_after(self, time_ms: int) -> list[Remove]:
        """Return the removes of files that were removed after a time, in ms since 1970."""
        return [one for one in self.values() if _time_of(one) > time_ms]

    def forget_until(self, time_ms: int) -> None:
        """Forget the tombstones of files that were removed until a time, in ms since 1970."""
        merged = self._merged()
        kept = {key: one for key, one in merged.items() if _time_of(one) > time_ms}
        if len(kept) < len(merged):
            self._set(kept)

    def _set(self, merged: dict[FileKey, Remove]) -> None:
        """Hold these tombstones, and no others that they were made of."""
        self._all = merged
        self._load, self._earlier, self._changed = None, None, {}

    def values(self) -> ValuesView[Remove]:
        """Return the removes, without a search for each by its key."""
        return self._merged().values()

    def __getitem__(self, key: FileKey) -> Remove:
        return self._merged()[canonical_key(key)]

    def __iter__(self) -> Iterator[FileKey]:
        return iter(self._merged())

    def __len__(self) -> int:
        return len(self._merged())


def _time_of(remove: Remove) -> int:
    """Return when the file was removed, in ms since 1970; 0 if the action doesn't say."""
    return remove.deletion_timestamp or 0
