"""Where the files may lie that a table's log names: in its own folder, and where that is allowed.

A log is data, and who wrote it may not have been allowed to read what its reader can. So a path
that climbs (`..`, however it is encoded) is damage, and one that leads out of the table's folder is
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
"""Among the places that are allowed: all of them."""


def nowhere() -> Iterable[str]:
    """No place but the table's own folder."""
    return ()


@dataclass(frozen=True, slots=True)
class Reach:
    """Where one table's files may lie.

    Attributes:
        root: the table's encoded URL.
        allowed: gives further folders, as encoded URLs; `ANYWHERE` for all places. Asked only when
            a file is met that lies elsewhere.
    """

    root: str
    allowed: Callable[[], Iterable[str]] = nowhere

    def url(self, path_in_log: str) -> str:
        """The encoded URL of a file, from its path as the log has it.

        Raises CorruptTable for a path that climbs, and InvalidRequest for a place that isn't
        allowed. Both name the table and the path.
        """
        if climbs(path_in_log):
            raise CorruptTable(
                f"{self.root}: the log names the file {path_in_log!r}: expected a path without "
                "'.' and '..'; who wrote it is no Delta writer. Restore the log from a backup"
            )
        url = absolute_url(self.root, path_in_log)
        if is_absolute(path_in_log):
            self._require(url)
        return url

    def vector(self, vector: DeletionVector) -> str:
        """Where a deletion vector's file is: a decoded path below the table, or an encoded URL.

        Raises what `url` raises, CorruptTable for an id that is none, and ValueError for an inline
        vector, which has no file.
        """
        path = vector_path(vector, self.root)
        if is_absolute(path):
            return self.url(path)
        self.url(encode_path(path))
        return path

    def _require(self, url: str) -> None:
        """Raises InvalidRequest when nothing allows the place."""
        if is_below(url, self.root):
            return
        if any(place == ANYWHERE or is_below(url, place) for place in self.allowed()):
            return
        raise InvalidRequest(
            f"{self.root}: the log names the file {url}, which is outside of the table's folder: "
            "expected a place that is allowed. If you trust who wrote the table (it may be a "
            "shallow clone), allow the folder: Settings(allow_outside_paths=(...,)), or the Spark "
            "setting spark.txlake.allowOutsidePaths where the table is named by its place alone"
        )


def climbs(path_in_log: str) -> bool:
    """Whether a path, decoded, has a part `.` or `..`, or a NUL, which no writer's has."""
    path = decode_path(path_in_log)
    if "\0" in path:
        return True
    if "/." not in path and not path.startswith("."):
        return False
    return any(part in {".", ".."} for part in path.split("/"))


def is_below(url: str, folder: str) -> bool:
    """Whether an encoded URL is of something below the folder, an encoded URL; neither climbs."""
    root = decode_path(normalise_url(folder)).rstrip("/")
    return decode_path(normalise_url(url)).startswith(f"{root}/")
