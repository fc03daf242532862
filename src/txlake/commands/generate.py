"""GENERATE symlink_format_manifest: lists of data files that Presto and Athena read."""

from __future__ import annotations

from collections import defaultdict

from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.paths import decode_path, partition_folder
from txlake.protocol.reach import Reach

MODE = "symlink_format_manifest"
FOLDER = "_symlink_format_manifest"


def write_manifests(mode: str, table: Snapshot, store: Store, reach: Reach) -> int:
    """Write a manifest for each partition, or one; delete manifests of partitions without files.

    They are written outside of the transaction.

    Args:
        mode: `symlink_format_manifest`, in any letter case.
        table: the snapshot whose files are listed by their decoded URLs, a line each.
        store: the table's store.
        reach: where the table's files may lie.

    Returns:
        The number of manifests written.

    Raises:
        InvalidRequest: another mode, or a table that a plain list of files can't describe: with
            deletion vectors or column mapping, or with a line break in a file's name; and as
            `Reach.url`.
    """
    if mode.lower() != MODE:
        raise InvalidRequest(f"{table.table}: GENERATE knows {MODE}, found {mode}")
    if table.column_mapping_mode != "none":
        raise InvalidRequest(
            f"{table.table}: a manifest can't be generated for a table with column mapping: its "
            "readers would look for the wrong columns"
        )
    lines: dict[str, list[str]] = defaultdict(list)
    if not table.partition_columns:
        lines[""] = []
    for add in table.files.adds():
        if add.deletion_vector is not None:
            raise InvalidRequest(
                f"{table.table}: a manifest can't be generated for a table with deletion vectors: "
                "its readers would see deleted rows; run REORG TABLE ... APPLY (PURGE) first"
            )
        folder = partition_folder(
            [(name, add.partition_values.get(name)) for name in table.partition_columns]
        )
        path = decode_path(reach.url(add.path))
        if len(path.splitlines()) > 1:
            raise InvalidRequest(
                f"{table.table}: a manifest can't be generated: the file name {path!r} has a line "
                "break, which would make it two; OPTIMIZE writes the rows to other files"
            )
        lines[folder].append(path)
    written = set()
    for folder, paths in lines.items():
        place = "/".join(part for part in (FOLDER, folder, "manifest") if part)
        store.put(place, "".join(f"{path}\n" for path in paths).encode())
        written.add(place)
    old = {stored.path for stored in store.list(FOLDER)}
    store.delete(sorted(old - written))
    return len(written)
