"""Move a lake's catalog to another database or store, while nobody works.

The lake's epoch is raised first, in the old catalog and in the warehouse's marker, so that no
process can go on with the old one. A move that is interrupted leaves the old catalog to be
recovered, or is complete.
"""

from __future__ import annotations

from txlake.catalog import Catalog
from txlake.errors import InvalidRequest, TxlakeError
from txlake.session.engine import RecoveryRequired
from txlake.session.membership.opening import Marker, read_marker, write_marker
from txlake.session.session import Session


def move_catalog(session: Session, target: Catalog) -> None:
    """Copy the lake's catalog into an empty one, and leave the lake unusable with the old one.

    Raises InvalidRequest while another session uses the lake or a transaction is open, and if the
    target has tables; what the lake's statements raise if the catalog has to be recovered; the
    errors of both catalogs and of the warehouse, after which the old catalog is used on.
    """
    engine = session.engine
    catalog, warehouse = engine.catalog.of_lake(), engine.warehouse
    assert warehouse is not None
    if engine.recovery_required is not None:
        raise engine.recovery_required.error
    if not target.is_empty():
        raise InvalidRequest(
            f"catalog {target.display_url}: it has tables, and a catalog can only be moved to an "
            "empty one; give another place"
        )
    _require_unused(catalog, session)
    marker = read_marker(warehouse)
    lake = catalog.lake_id
    newest = max(catalog.epoch, 0 if marker is None else marker.epoch)
    epoch = catalog.recovery.begin(lake, newest + 1, session.number())
    try:
        # From here on a recovery of the old catalog gets a later epoch than the new one.
        write_marker(warehouse, Marker(lake, epoch + 1))
        target.contents.replace(catalog.contents.read(), epoch + 1)
    except TxlakeError:
        write_marker(warehouse, Marker(lake, epoch))
        catalog.recovery.end(epoch)
        raise
    catalog.contents.note_move(target.display_url)
    engine.recovery_required = RecoveryRequired.moved(
        catalog.display_url, lake, epoch + 1, target.display_url
    )


def _require_unused(catalog: Catalog, session: Session) -> None:
    """Raise InvalidRequest if another session, or an open transaction, uses the lake."""
    for entry in catalog.sessions.entries():
        if entry.id != session.number():
            raise InvalidRequest(
                f"the catalog can't be moved while session {entry.id} (process {entry.process} on "
                f"{entry.host}) uses the lake: end it first"
            )
    for transaction in catalog.transactions.entries():
        raise InvalidRequest(
            f"the catalog can't be moved while transaction {transaction.id} is open: end it first"
        )
