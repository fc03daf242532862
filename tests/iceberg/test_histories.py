"""Random histories of commits, published version by version or several at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.iceberg.tables import IcebergTable, file, removed
from tests.session.tables import T, specs
from txlake.iceberg import manifests
from txlake.iceberg.store_io import StoreIO
from txlake.protocol.actions import Action, Add
from txlake.sql.statements import AddColumns, AddedColumn

STEPS = st.lists(
    st.sampled_from(
        ["append", "append", "delete", "update", "optimize", "restate", "nothing", "alter"]
    ),
    min_size=1,
    max_size=8,
)


@dataclass
class History:
    """A table and the live files of each of its versions."""

    table: IcebergTable
    live: dict[str, Add] = field(default_factory=dict)
    versions: list[list[str]] = field(default_factory=lambda: [[]])
    count: int = 0

    def new(self, *, data_change: bool = True) -> Add:
        self.count += 1
        partition = ("1", "2", None)[self.count % 3]
        made = file(f"f{self.count}", p=partition, data_change=data_change, of=self.table.snapshot)
        self.live[made.path] = made
        return made

    def old(self, count: int) -> list[Add]:
        return [self.live.pop(path) for path in sorted(self.live)[:count]]

    def step(self, kind: str) -> None:
        """Commit one version of this kind; without live files it may change nothing."""
        actions: list[Action] = []
        if kind == "append":
            actions = [self.new(), self.new()]
        elif kind == "delete":
            actions = [removed(one) for one in self.old(1)]
        elif kind == "update":
            actions = [*(removed(one) for one in self.old(2)), self.new()]
        elif kind == "optimize":
            gone = [removed(one, data_change=False) for one in self.old(3)]
            actions = [*gone, self.new(data_change=False)] if gone else []
        elif kind == "restate" and self.live:
            first = self.live[min(self.live)]
            actions = [msgspec.structs.replace(first, data_change=False, tags={"seen": "again"})]
        if kind == "alter":
            column = specs(f"c{self.table.version} int")[0]
            self.table.alter(AddColumns(T, (AddedColumn(column=column),)))
        else:
            self.table.commit(*actions)
        self.versions.append(sorted(self.live))

    def check(self) -> None:
        """Iceberg's readers see the files of each version."""
        for version, expected in enumerate(self.versions):
            assert self.table.live(version) == expected, f"version {version}"
        current = self.table.iceberg.current_snapshot()
        assert current is not None
        assert current.summary is not None
        assert current.summary["total-data-files"] == str(len(self.live))
        assert self.table.iceberg.properties["delta-version"] == str(self.table.version)


@settings(max_examples=40)
@given(steps=STEPS, at_once=st.lists(st.booleans(), min_size=8, max_size=8))
def test_each_version_is_a_snapshot_with_its_files(steps: list[str], at_once: list[bool]) -> None:
    history = History(IcebergTable())
    history.table.publish()
    for kind, postponed in zip(steps, at_once):
        history.step(kind)
        if not postponed:
            history.table.publish()
            assert history.table.iceberg.properties["delta-version"] == str(history.table.version)
    history.table.publish()
    history.check()


@settings(max_examples=10)
@given(steps=STEPS)
def test_small_manifests_are_merged(steps: list[str]) -> None:
    before = manifests.MERGED_FROM, manifests.ENTRIES_MAX
    manifests.MERGED_FROM, manifests.ENTRIES_MAX = 3, 4
    try:
        history = History(IcebergTable())
        history.table.publish()
        for kind in [*steps, "append", "append", "append", "append"]:
            history.step(kind)
            history.table.publish()
        history.check()
        io = StoreIO(history.table.files.store)
        newest = history.table.iceberg_snapshot(history.table.version)
        assert len(newest.manifests(io)) < 8
    finally:
        manifests.MERGED_FROM, manifests.ENTRIES_MAX = before
