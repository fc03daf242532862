"""The places where the files in a table's log may lie: its own folder, and places that are allowed.

A log is data, and its writer may have lacked permissions that its reader has. So a path with `.` or
`..` parts (however encoded) counts as damage, and one that leads out of the table's folder is
refused unless the reader's own settings, or its lake, allow the place. Source: PROTOCOL.md, "Add
File and Remove File", "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import DeletionVector
from txlake.protocol.deletion_vectors import vector_path
from txlake.protocol.paths import absolute_url, decode_path, encode_path, is_absolute, normalise_url

ANYWHERE = "*"
"""In a list of allowed places: every place."""


def no_other_places() -> Iterable[str]:
    """Return no place, so that only the table's own folder is allowed."""
    return ()


@dataclass(frozen=True, slots=True)
class Reach:
    """The places where one table's files may lie.

    Attributes:
        root: the table's encoded URL.
        allowed: returns further folders, as encoded URLs; `ANYWHERE` for all places. Called only
            for a file outside of the root.
    """

    root: str
    allowed: Callable[[], Iterable[str]] = no_other_places

    def url(self, path_in_log: str) -> str:
        """Return the encoded URL of a file, from its path in the log.

        Raises CorruptTable for a path with dot parts, and InvalidRequest for a place that isn't
        allowed. Both name the table and the path.
        """
        if has_dot_parts(path_in_log):
            raise CorruptTable(
                f"{self.root}: the log names the file {path_in_log!r}: expected a path without "
                "'.' and '..'; who wrote it is no Delta writer. Restore the log from a backup"
            )
        url = absolute_url(self.root, path_in_log)
        if is_absolute(path_in_log):
            self.place_of(url)
        return url

    def vector(self, vector: DeletionVector) -> str:
        """Return the path of a deletion vector's file: decoded below the table, or an encoded URL.

        Raises the errors of `url`, CorruptTable for an invalid id, and ValueError for an inline
        vector, which has no file.
        """
        path = vector_path(vector, self.root)
        if is_absolute(path):
            return self.url(path)
        self.url(encode_path(path))
        return path

    def place_of(self, url: str) -> str:
        """Return the table's folder or the allowed place in which a file, an encoded URL, lies.

        Raises InvalidRequest when nothing allows it.
        """
        if is_below(url, self.root):
            return self.root
        for place in self.allowed():
            if place == ANYWHERE or is_below(url, place):
                return place
        raise InvalidRequest(
            f"{self.root}: the log names the file {url}, which is outside of the table's folder: "
            "expected a place that is allowed. If you trust who wrote the table (it may be a "
            "shallow clone), allow the folder: Settings(allow_outside_paths=(...,)), or the Spark "
            "setting spark.txlake.allowOutsidePaths where the table is named by its place alone"
        )


def has_dot_parts(path_in_log: str) -> bool:
    """Return whether a path, decoded, has a part `.` or `..`, or a NUL, which no writer
    produces.
    """
    path = decode_path(path_in_log)
    if "\0" in path:
        return True
    if "/." not in path and not path.startswith("."):
        return False
    return any(part in {".", ".."} for part in path.split("/"))


def is_below(url: str, folder: str) -> bool:
    """Return whether an encoded URL lies below the folder, an encoded URL; neither has dot parts.

    False for the folder itself.
    """
    root = decode_path(normalise_url(folder)).rstrip("/")
    return decode_path(normalise_url(url)).startswith(f"{root}/")
