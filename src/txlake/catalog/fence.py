"""Detect that the catalog is not the one that this process opened.

Another process may rebuild the catalog, or restore a backup, while this one has it open. Two
numbers show that: the epoch, which each recovery raises, and the newest instant, which never goes
back. A process that was fenced off has to connect again. `database` detects that a SQLite file was
replaced.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.relations import facts
from txlake.errors import CorruptTable, Unavailable

EPOCH_FACT = "epoch"
FIRST_EPOCH = 1

# A catalog that was never recovered doesn't say its epoch.
EPOCH: sa.ColumnElement[int] = sa.func.coalesce(
    sa.cast(
        sa.select(facts.c.value).where(facts.c.name == EPOCH_FACT).scalar_subquery(),
        sa.BigInteger,
    ),
    FIRST_EPOCH,
).label("epoch")


def epoch_of(connection: Connection) -> int:
    """Return the catalog's present epoch."""
    return int(connection.execute(sa.select(EPOCH)).scalar_one())


class Fence:
    """One process's knowledge of its catalog. `display_url` names the catalog in messages.

    Attributes:
        epoch: the epoch in which this process works.
        newest: the newest instant of the lake that it has observed.
    """

    def __init__(self, display_url: str) -> None:
        self._display_url = display_url
        self.epoch = FIRST_EPOCH
        self.newest = 0

    def check(self, epoch: int, sequence: int, *, known: int | None = None) -> None:
        """Compare the epoch and instant of a database transaction with the known ones; remember
        them.

        `known`: the newest instant known before that transaction began, if it locked nothing; other
        threads may have observed newer ones since.

        Raises Unavailable in another epoch, CorruptTable for an instant that has gone back.
        """
        self.check_epoch(epoch)
        newest = self.newest if known is None else known
        if sequence < newest:
            raise CorruptTable(
                f"catalog {self._display_url}: its newest instant is {sequence}, and this process "
                f"has seen instant {newest}: it was restored from a backup. Nothing was changed; "
                "stop other writers, connect again, and let lake.recover() bring it up to the "
                "tables' logs"
            )
        self.newest = max(self.newest, sequence)

    def check_epoch(self, epoch: int) -> None:
        """Raise Unavailable unless this process works in that epoch."""
        if epoch != self.epoch:
            raise Unavailable(
                f"catalog {self._display_url}: {self._what_happened(epoch)}. Nothing was "
                "committed; connect again (txlake.connect), and run the transaction again"
            )

    def _what_happened(self, epoch: int) -> str:
        """Return what a catalog in another epoch went through, as a part of a message."""
        if epoch > self.epoch:
            return (
                f"lake.recover() has rebuilt it (epoch {epoch}) since this process opened it "
                f"(epoch {self.epoch})"
            )
        return (
            f"a copy from before the last lake.recover() was put back (epoch {epoch}) since this "
            f"process opened it (epoch {self.epoch})"
        )
