"""The drop note in a dropped table's folder, and how long dropped tables are retained.

Owns the note, a file in the table's log folder. It is written after the drop was committed, and
deleted before the table is undropped. So a folder with a note holds no table of the lake, whatever
a catalog from a backup, or a new one, has for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from txlake.catalog import Catalog, DroppedEntry
from txlake.errors import InvalidRequest
from txlake.ports import Store
from txlake.protocol.file_names import LOG_FOLDER
from txlake.protocol.properties import interval_ms
from txlake.settings import Settings

PROPERTY = "txlake.droppedTableRetention"
"""The database property that sets how long dropped tables can be undropped, an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNote:
    """The content of a drop note. `version`: the newest version that the table had."""

    version: int
    dropped_ms: int
    kept_until_ms: int

    @staticmethod
    def of(dropped: DroppedEntry) -> DropNote:
        """Return the note for a dropped table."""
        head = dropped.entry.head
        return DropNote(
            version=-1 if head is None else head,
            dropped_ms=dropped.dropped_ms,
            kept_until_ms=dropped.kept_until_ms,
        )


def parse_retention(text: str) -> int:
    """Return the property's value in milliseconds. Raises InvalidRequest if it is no interval."""
    try:
        return interval_ms(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{PROPERTY} = {text!r}: expected an interval such as 'interval 7 days': {error}"
        ) from error


def retention_ms(catalog: Catalog, settings: Settings, database: str) -> int:
    """Return for how many milliseconds a table that is dropped now from a database is retained.

    The database's property counts before the settings. Raises InvalidRequest if it is no interval.
    """
    entry = catalog.database(database)
    text = None if entry is None else entry.properties.get(PROPERTY)
    return settings.dropped_table_retention_ms if text is None else parse_retention(text)


def note_path(table_id: str) -> str:
    """Return the path of a table's drop note in its folder.

    An empty file there means that the folder is being removed.
    """
    return f"{LOG_FOLDER}/_dropped.{table_id}"


def read_drop_note(store: Store, table_id: str) -> DropNote | None:
    """Return the drop note of a table in a folder.

    None if there is none, if the folder is being removed, or if the file is invalid.
    """
    try:
        text = store.get(note_path(table_id))
    except FileNotFoundError:
        return None
    try:
        return DropNote(**json.loads(text))
    except (ValueError, TypeError):
        return None


def write_drop_note(catalog: Catalog, store: Store, dropped: DroppedEntry) -> None:
    """Write a dropped table's note into its folder, and record it in the catalog.

    The note is deleted again if the table was undropped meanwhile.
    """
    table_id, path = dropped.entry.id, note_path(dropped.entry.id)
    store.put(path, json.dumps(asdict(DropNote.of(dropped))).encode())
    is_recorded = catalog.dropped.record_drop_note(table_id, dropped.dropped_ms)
    if not is_recorded and catalog.dropped.find(table_id) is None:
        store.delete([path])  # the table was undropped meanwhile


def remove_drop_note(catalog: Catalog, store: Store, table_id: str) -> None:
    """Remove a table's drop note before the table is undropped.

    If the undrop fails after that, the note is written again when the lake is opened.
    """
    catalog.dropped.clear_drop_note(table_id)
    store.delete([note_path(table_id)])
