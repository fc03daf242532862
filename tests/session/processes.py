"""The processes of one lake, without Spark, and what is done and seen in them."""

from __future__ import annotations

from tests.catalog.backups import copied, put_back
from tests.session.offline import Offline
from txlake.catalog import Catalog
from txlake.ports import Store
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.session.membership.opening import open_lake
from txlake.session.membership.recovery import Recovered
from txlake.system import System

INTRUDER = encode_actions([CommitInfo({"operation": "INTRUDE", "engineInfo": "another"})])


class Lakes:
    """The processes of one lake, each with a catalog of its own on one database.

    Dropped tables are kept for `kept_ms`.
    """

    def __init__(self, url: str, kept_ms: int = 0) -> None:
        self.url = url
        self.kept_ms = kept_ms
        self.catalogs: list[Catalog] = []
        self.place: str | None = None

    def process(self) -> Offline:
        """One more, that has opened the lake."""
        catalog = Catalog(self.url, System())
        self.catalogs.append(catalog)
        made = Offline(self.place, catalog, kept_ms=self.kept_ms)
        self.place = made.place
        open_lake(made.session)
        return made

    def close(self) -> None:
        for catalog in self.catalogs:
            catalog.close()

    def store(self, name: str) -> Store:
        """A table's folder."""
        made = Offline(self.place, self.catalogs[-1])
        return made.at(f"{self.place}/{name}").store

    def versions(self, name: str) -> list[int]:
        """Those that are in a table's log, as every reader sees them."""
        found = [stored.path for stored in self.store(name).list("_delta_log")]
        names = [path.removeprefix("_delta_log/") for path in found]
        return [int(name[:-5]) for name in names if len(name) == 25 and name.endswith(".json")]

    def comments(self, name: str) -> list[str | None]:
        """What each version says."""
        log = Offline(self.place, self.catalogs[-1]).at(f"{self.place}/{name}").log
        return [log.snapshot(version).metadata.description for version in self.versions(name)]


def say(lake: Offline, text: str, table: str = "t") -> None:
    """One more version of a table."""
    lake.run(f"COMMENT ON TABLE {table} IS '{text}'")


def told(report: Recovered, *parts: str) -> bool:
    """Whether one sentence of what was done has all of these parts."""
    return any(all(part in sentence for part in parts) for sentence in report.done)


def head(lake: Offline, name: str = "t") -> int:
    entry = lake.catalog.find("default", name)
    assert entry is not None
    found = lake.catalog.ledger.head(entry.id)
    assert found is not None
    assert not found.pending
    return found.version


def restored(lakes: Lakes) -> None:
    """Two commits of t are told after the copy that the catalog is made from."""
    lake = lakes.process()
    say(lake, "one")
    copy = copied(lakes.url)
    say(lake, "two")
    say(lake, "three")
    put_back(lakes.url, copy)
