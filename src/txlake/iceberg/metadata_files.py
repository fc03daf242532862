"""The files of a table's Iceberg metadata: `metadata/v<n>.metadata.json`, and the hint to them.

Each file follows the one before and is put if absent, so that of several publishers one goes on
from what it has read. The names are those of Iceberg's own tables without a catalog, which readers
find by the hint. Source: Iceberg's specification, "File System Tables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table.metadata import TableMetadataV2

from txlake.errors import InvalidRequest
from txlake.iceberg.conversion import FOLDER
from txlake.iceberg.store_io import StoreIO, location_of
from txlake.iceberg.table_metadata import METADATA_FILES_KEPT, converted_version
from txlake.ports import PutOutcome, Store

HINT_PATH = f"{FOLDER}/version-hint.text"
_NAME = re.compile(rf"{FOLDER}/v(\d+)\.metadata\.json")


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A metadata file of the table: its number, and what it holds."""

    number: int
    metadata: TableMetadataV2

    @property
    def version(self) -> int:
        """The Delta version that it shows."""
        version = converted_version(self.metadata)
        assert version is not None, "checked when it is read"
        return version


def metadata_path(number: int) -> str:
    """Return a metadata file's path below the table."""
    return f"{FOLDER}/v{number}.metadata.json"


def metadata_location(table_url: str, number: int) -> str:
    """Return the location by which Iceberg's readers open a metadata file."""
    return f"{location_of(table_url)}/{metadata_path(number)}"


def newest_number(store: Store) -> int | None:
    """Return the number of the newest metadata file, by a listing; None without any."""
    found = store.list(FOLDER, f"{FOLDER}/v", f"{FOLDER}/w")
    names = (_NAME.fullmatch(item.path) for item in found)
    return max((int(name[1]) for name in names if name is not None), default=None)


def newest_file(store: Store) -> MetadataFile | None:
    """Return the newest metadata file; None without any.

    Raises InvalidRequest if another writer's Iceberg table is in the table's folder.
    """
    number = newest_number(store)
    if number is None:
        return None
    path = metadata_path(number)
    try:
        metadata = TableMetadataV2.model_validate_json(store.get(path))
    except (ValidationError, LookupError) as error:
        raise _foreign(store, path) from error
    if converted_version(metadata) is None:
        raise _foreign(store, path)
    return MetadataFile(number, metadata)


def _foreign(store: Store, path: str) -> InvalidRequest:
    return InvalidRequest(
        f"{store.url}/{path}: expected Iceberg metadata (v2) of this Delta table, found that of "
        "another writer; move it elsewhere, so that it isn't changed"
    )


def put_metadata(store: Store, file: MetadataFile) -> PutOutcome:
    """Put a metadata file unless another one has its number."""
    text = file.metadata.model_dump_json(exclude_none=True)
    return store.put_if_absent(metadata_path(file.number), text.encode())


def finish(store: Store, number: int) -> None:
    """Let the hint name a metadata file, and delete the one that is too old to be kept."""
    if number > METADATA_FILES_KEPT:
        store.delete([metadata_path(number - METADATA_FILES_KEPT)])
    _write_hint(store, number)


def repair_hint(store: Store, number: int) -> None:
    """Let the hint name the newest metadata file if a killed process left it behind."""
    try:
        text = store.get(HINT_PATH)
    except FileNotFoundError:
        text = b""
    if text != str(number).encode():
        _write_hint(store, number)


def _write_hint(store: Store, number: int) -> None:
    """Let the hint name a metadata file, or the newest one if others have followed meanwhile.

    Who writes the hint looks for the next file afterwards: so the hint that is written last names
    the newest file.
    """
    newest: int | None = number
    while newest is not None:
        store.put(HINT_PATH, str(newest).encode())
        newest = newest_number(store) if store.head(metadata_path(newest + 1)) else None


def needed_paths(store: Store) -> Iterator[str]:
    """Yield the paths of all files that the newest metadata needs, those of older metadata files
    included.

    Raises as `newest_file`, and FileNotFoundError for a missing manifest list.
    """
    yield HINT_PATH
    newest = newest_file(store)
    if newest is None:
        return
    for number in range(max(1, newest.number - METADATA_FILES_KEPT), newest.number + 1):
        yield metadata_path(number)
    root = f"{location_of(store.url)}/"
    for location in _metadata_locations(newest.metadata, StoreIO(store)):
        yield location.removeprefix(root)


def _metadata_locations(metadata: TableMetadataV2, io: FileIO) -> Iterator[str]:
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in read_manifest_list(io.new_input(snapshot.manifest_list)):
            yield manifest.manifest_path
