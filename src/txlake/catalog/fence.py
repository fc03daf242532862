"""Whether the catalog is still the one that this process opened.

A catalog can be rebuilt by another process, or be put back from a backup, while this one has it
open. Two numbers tell: its epoch, which each recovery raises, and its newest instant, which never
goes back. Whoever was fenced off has to connect again. That a SQLite file was exchanged for another
is `database`'s to notice.
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
    """The catalog's epoch now."""
    return int(connection.execute(sa.select(EPOCH)).scalar_one())


class Fence:
    """What one process knows of its catalog. `shown` is what messages call the catalog.

    Attributes:
        epoch: the one in which this process works.
        newest: the newest instant of the lake that it has seen.
    """

    def __init__(self, display_url: str) -> None:
        self._display_url = display_url
        self.epoch = FIRST_EPOCH
        self.newest = 0

    def check(self, epoch: int, sequence: int, *, known: int | None = None) -> None:
        """Compares what a database transaction found with what is known, and remembers it.

        `known`: the newest instant as it was known before that transaction began, for one that
        locked nothing; others may have seen newer ones since.

        Raises Unavailable in another epoch, CorruptTable for an instant that has gone back.
        """
        self.check_epoch(epoch)
        newest = self.newest if known is None else known
        if sequence < newest:
            raise CorruptTable(
                f"catalog {self._display_url}: its newest instant is {sequence}, and this "
                "process has "
                f"seen instant {newest}: it was restored from a backup. Nothing was changed; stop "
                "other writers, connect again, and let lake.recover() bring it up to the tables' "
                "logs"
            )
        self.newest = max(self.newest, sequence)

    def check_epoch(self, epoch: int) -> None:
        """Raises Unavailable unless it is the one in which this process works."""
        if epoch != self.epoch:
            raise Unavailable(
                f"catalog {self._display_url}: {self._what_happened(epoch)}. Nothing was "
                "committed; "
                "connect again (txlake.connect), and run the transaction again"
            )

    def _what_happened(self, epoch: int) -> str:
        if epoch > self.epoch:
            return (
                f"lake.recover() has rebuilt it (epoch {epoch}) since this process opened it "
                f"(epoch {self.epoch})"
            )
        return (
            f"a copy from before the last lake.recover() was put back (epoch {epoch}) since this "
            f"process opened it (epoch {self.epoch})"
        )
