"""The audit of change feeds: each version's feed has to lead from the previous rows to its own.

The feed is read through the engine's own handlers, and compared with rows read without them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.simulation.records import Violation
from tests.simulation.rows import RowSession
from tests.simulation.statements import Row, Rows
from tests.simulation.stores import ObjectState, Storage, is_commit

FEED = ("delta.enableChangeDataFeed", "true")
_IN_LOG = re.compile(r"/_delta_log/(?!\d{20}\.json$)")


def restore_deleted_objects(storage: Storage, now_ms: int) -> None:
    """Restore the commits that clean-up deleted and the data files that VACUUM deleted.

    Afterwards the feed of every version can be read. A commit that another writer put in place of a
    deleted one is replaced by the original.
    """
    for key, data in list(storage.last_written.items()):
        item = storage.items.get(key)
        fills_gap = item is not None and item.data != data
        if (item is None and not _IN_LOG.search(key)) or (fills_gap and is_commit(key)):
            storage.write(key, ObjectState(data, now_ms))


def check_feed(
    session: RowSession, name: str, place: str, rows: Mapping[int, Rows], since: int
) -> None:
    """Check a table's feed. Raises Violation unless it leads from each version's rows to the next.

    Args:
        name: the table's name in messages.
        place: the table's name in SQL.
        rows: the rows of each version.
        since: the version after which the feed is checked.
    """
    newest = max(rows)
    if newest == since:
        return
    told: dict[int, dict[str, Counter[Row]]] = defaultdict(lambda: defaultdict(Counter))
    for one in session.rows(f"SELECT * FROM table_changes('{place}', {since + 1}, {newest})"):
        version, kind = int(str(one["_commit_version"])), str(one["_change_type"])
        told[version][kind][one["k"], one["v"], one["tag"]] += 1  # type: ignore[index]
    for version in range(since + 1, newest + 1):
        changes = told[version]
        before, after = Counter(rows[version - 1]), Counter(rows[version])
        gone = changes["delete"] + changes["update_preimage"]
        new = changes["insert"] + changes["update_postimage"]
        if gone - before or before - gone + new != after:
            raise Violation(
                f"{name} version {version}: its feed tells {sorted(gone.elements())} went and "
                f"{sorted(new.elements())} came; lost {sorted((before - after).elements())}, "
                f"appeared {sorted((after - before).elements())}"
            )
        if changes["update_preimage"].total() != changes["update_postimage"].total():
            raise Violation(
                f"{name} version {version}: its feed has images without another: {changes}"
            )
