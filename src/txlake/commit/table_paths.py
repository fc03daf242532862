"""The paths below a table's folder of the files that an action of its log names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from txlake.protocol.actions import Add, DeletionVector, Remove
from txlake.protocol.deletion_vectors import vector_path
from txlake.protocol.paths import absolute_url, decode_path, is_absolute


def files_of(url: str, action: Add | Remove) -> Iterator[str]:
    """Yield the canonical paths of the file and of its deletion vector's file."""
    yield from path_in_table(url, action.path)
    if action.deletion_vector is not None:
        yield from vector_path_in_table(url, action.deletion_vector)


def path_in_table(table_url: str, path_in_log: str) -> Iterator[str]:
    """Yield the file's canonical path relative to the table; nothing when it lies outside."""
    if is_absolute(path_in_log):
        root = decode_path(table_url).rstrip("/") + "/"
        path = decode_path(absolute_url(table_url, path_in_log))
        if not path.startswith(root):
            return
        yield posixpath.normpath(path[len(root) :])
    else:
        yield posixpath.normpath(decode_path(path_in_log))


def vector_path_in_table(table_url: str, vector: DeletionVector) -> Iterator[str]:
    """Yield the canonical path of the vector's file; nothing if it is inline, or outside of the
    table.
    """
    if vector.storage_type == "i":
        return
    path = vector_path(vector, table_url)
    if is_absolute(path):
        yield from path_in_table(table_url, path)
    else:
        yield posixpath.normpath(path)
