"""For how long dropped tables are kept, and how the folder of one says that it was dropped.

Owns a file in the table's log folder. It is written after the drop was committed, and deleted
before the table is one again: so a folder that has it holds no table of the lake, whatever a
catalog from a backup, or a new one, knows of it.
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
"""Of a database: for how long the tables that are dropped from it can come back, an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNote:
    """What the file says; `version` is the newest one that the table had."""

    version: int
    dropped_ms: int
    kept_until_ms: int

    @staticmethod
    def of(dropped: DroppedEntry) -> DropNote:
        """What the folder of a dropped table is to say."""
        head = dropped.entry.head
        return DropNote(
            version=-1 if head is None else head,
            dropped_ms=dropped.dropped_ms,
            kept_until_ms=dropped.kept_until_ms,
        )


def parse_retention(text: str) -> int:
    """The value of the property, in milliseconds. Raises InvalidRequest for no interval."""
    try:
        return interval_ms(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{PROPERTY} = {text!r}: expected an interval such as 'interval 7 days': {error}"
        ) from error


def retention_ms(catalog: Catalog, settings: Settings, database: str) -> int:
    """For how long a table that is dropped from a database now can come back."""
    entry = catalog.database(database)
    text = None if entry is None else entry.properties.get(PROPERTY)
    return settings.dropped_table_retention_ms if text is None else parse_retention(text)


def note_path(table_id: str) -> str:
    """The file that says that the table in a folder was dropped; an empty one: it is removed."""
    return f"{LOG_FOLDER}/_dropped.{table_id}"


def read_drop_note(store: Store, table_id: str) -> DropNote | None:
    """What a folder says of a table that was dropped, and may come back; None: nothing."""
    try:
        text = store.get(note_path(table_id))
    except FileNotFoundError:
        return None
    try:
        return DropNote(**json.loads(text))
    except (ValueError, TypeError):
        return None


def write_drop_note(catalog: Catalog, store: Store, dropped: DroppedEntry) -> None:
    """Makes a folder say that its table was dropped."""
    table_id, path = dropped.entry.id, note_path(dropped.entry.id)
    store.put(path, json.dumps(asdict(DropNote.of(dropped))).encode())
    noted = catalog.dropped.record_drop_note(table_id, dropped.dropped_ms)
    if not noted and catalog.dropped.find(table_id) is None:
        store.delete([path])  # it came back meanwhile


def remove_drop_note(catalog: Catalog, store: Store, table_id: str) -> None:
    """Makes a folder say so no more, as its table comes back.

    Where that goes no further, the folder is told again when the lake is opened.
    """
    catalog.dropped.clear_drop_note(table_id)
    store.delete([note_path(table_id)])
