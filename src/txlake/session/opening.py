"""A lake is opened: whose warehouse it is, and what was left half done is finished.

Owns the warehouse's marker, which keeps two catalogs from governing one warehouse.
"""

from __future__ import annotations

import json

from txlake.errors import CorruptTable, OutcomeUnknown
from txlake.ports import PutOutcome, Store
from txlake.session.belongings import attach_named, catalog_of, finish
from txlake.session.session import Session

MARKER = "_txlake/lake.json"


def open_lake(session: Session) -> None:
    """Makes the lake of a session ready.

    Raises InvalidRequest when the warehouse is another lake's, Unavailable when it or the catalog
    can't be reached.
    """
    engine = session.engine
    catalog = catalog_of(engine)
    warehouse = engine.warehouse
    assert warehouse is not None
    lake = lake_at(warehouse) or _marked(warehouse, catalog.lake_id)
    if lake != catalog.lake_id:
        if not catalog.is_empty():
            catalog.check_warehouse(lake, warehouse.url)
        engine.lost = lake
        return
    finish(engine)
    attach_named(engine, session.number)


def lake_at(warehouse: Store) -> str | None:
    """The id of the lake that the warehouse says to be; None when it says nothing.

    Raises CorruptTable for a marker that can't be read.
    """
    try:
        text = warehouse.get(MARKER)
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(text)["lake"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f'{warehouse.url}/{MARKER}: expected {{"lake": id}}, found {text[:100]!r}; remove it '
            "when you are certain that no other catalog governs this warehouse"
        ) from error


def _marked(warehouse: Store, lake: str) -> str:
    """Writes the marker unless another was first; the lake that it names."""
    outcome = warehouse.put_if_absent(MARKER, json.dumps({"lake": lake}).encode())
    if outcome is PutOutcome.CREATED:
        return lake
    found = lake_at(warehouse)
    if found is None:
        raise OutcomeUnknown(f"{warehouse.url}/{MARKER}: writing it was not answered; try again")
    return found
