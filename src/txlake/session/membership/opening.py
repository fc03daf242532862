"""Open a lake: check that catalog and warehouse belong together, and finish interrupted work.

Owns the warehouse's marker, which keeps two catalogs from governing one warehouse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from txlake.catalog import Catalog
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown
from txlake.ports import PutOutcome, Store
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.engine import RecoveryRequired
from txlake.session.membership.attachment import attach_unattached
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.session import Session
from txlake.storage import local_path

MARKER = "_txlake/lake.json"


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a warehouse's marker: the lake's id, and the epoch of its catalog."""

    lake: str
    epoch: int = 1

    def encode(self) -> bytes:
        """Return the content of the marker's file."""
        return json.dumps({"lake": self.lake, "epoch": self.epoch}).encode()


def open_lake(session: Session, earlier_marker: Callable[[], Marker | None] = lambda: None) -> None:
    """Prepare a session's lake for statements.

    `earlier_marker` returns the warehouse's marker as it was read before the catalog; it is read
    again unless it is the catalog's own. A warehouse without a marker gets one.

    If the catalog has to be recovered first, `engine.recovery_required` is set, by which statements
    are refused, and nothing else is done. Otherwise drops, publications and attachments that were
    interrupted are finished.

    Raises InvalidRequest if the warehouse is another lake's or was copied, CorruptTable for an
    invalid marker, OutcomeUnknown if writing it got no answer, and Unavailable if the warehouse or
    the catalog can't be reached.
    """
    engine = session.engine
    catalog = engine.catalog.of_lake()
    warehouse = engine.warehouse
    assert warehouse is not None
    own = Marker(catalog.lake_id, catalog.epoch)
    marker = _current_marker(warehouse, own, earlier_marker())
    if marker.lake != own.lake:
        if not catalog.is_empty():
            catalog.check_warehouse(marker.lake, warehouse.url)
        engine.recovery_required = RecoveryRequired.new(
            catalog.display_url, warehouse.url, marker.lake, marker.epoch
        )
        return
    _require_not_copied(catalog, warehouse)
    if marker.epoch > own.epoch:
        engine.recovery_required = _older_or_moved(catalog, marker, own)
        return
    if catalog.recovery.is_unfinished():
        engine.recovery_required = RecoveryRequired.unfinished(
            catalog.display_url, marker.lake, own.epoch
        )
        return
    if marker.epoch < own.epoch:  # a recovery was interrupted before it wrote the marker
        write_marker(warehouse, own)
    catalog.check_warehouse(own.lake, warehouse.url)
    finish_interrupted(engine)
    attach_unattached(engine, session.number)


def _current_marker(warehouse: Store, own: Marker, earlier: Marker | None) -> Marker:
    """Return the warehouse's marker, which is `own` if there was none. `earlier`: as it was read
    before the catalog. Raises as `read_marker` and `_create_marker`.
    """
    if earlier == own:
        return own
    return read_marker(warehouse) or _create_marker(warehouse, own)


def _older_or_moved(catalog: Catalog, marker: Marker, own: Marker) -> RecoveryRequired:
    """Return why a catalog from an earlier epoch than the warehouse's marker can't be used."""
    moved_to = catalog.contents.moved_to()
    url = catalog.display_url
    return (
        RecoveryRequired.older(url, marker.lake, own.epoch, marker.epoch)
        if moved_to is None
        else RecoveryRequired.moved(url, marker.lake, marker.epoch, moved_to)
    )


def _require_not_copied(catalog: Catalog, warehouse: Store) -> None:
    """Raise InvalidRequest if the warehouse was copied or moved together with its catalog.

    The catalog then has managed tables outside this folder, and the folder has a log in the place
    of one of them.
    """
    folder = local_path(warehouse.url)
    if folder is None:
        return
    location = catalog.managed_outside(warehouse.url)
    outside = None if location is None else local_path(location)
    if outside is None:
        return
    if Path(outside).resolve().is_relative_to(Path(folder).resolve()):
        return  # by another path to the same folder
    *_, owner, name = Path(outside).parts
    folder_of_table = f"{owner}/{name}" if owner.endswith(".db") else name
    if next(iter(warehouse.list(f"{folder_of_table}/{LOG_FOLDER}")), None) is None:
        return  # another warehouse of the same catalog, and no copy
    raise InvalidRequest(
        f"warehouse {warehouse.url}: catalog {catalog.display_url} has a table of it at "
        f"{location}: the folder was moved or copied, and a catalog keeps its tables' places. "
        "Nothing was changed; connect to the folder where the tables were, or give this one a "
        "new, empty catalog (without catalog= remove its _txlake/catalog.db), and let "
        "lake.recover() take the tables in where they are now"
    )


def read_marker(warehouse: Store) -> Marker | None:
    """Return the warehouse's marker; None if there is none.

    Raises CorruptTable for a marker that can't be read.
    """
    try:
        text = warehouse.get(MARKER)
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        return Marker(str(fields["lake"]), int(fields.get("epoch", 1)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTable(
            f'{warehouse.url}/{MARKER}: expected {{"lake": id, "epoch": number}}, found '
            f"{text[:100]!r}; remove it when you are certain that no other catalog governs this "
            "warehouse"
        ) from error


def write_marker(warehouse: Store, marker: Marker) -> None:
    """Write the warehouse's marker, over an existing one."""
    warehouse.put(MARKER, marker.encode())


def _create_marker(warehouse: Store, own: Marker) -> Marker:
    """Write the marker unless another process has; return the marker that the warehouse has.

    Raises OutcomeUnknown if it is unknown whether the marker was written.
    """
    outcome = warehouse.put_if_absent(MARKER, own.encode())
    if outcome is PutOutcome.CREATED:
        return own
    marker = read_marker(warehouse)
    if marker is None:
        raise OutcomeUnknown(f"{warehouse.url}/{MARKER}: writing it was not answered; try again")
    return marker
