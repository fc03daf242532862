"""Files of a log that are requested before they are read, all at once.

Over a network a request takes as long as many. What is requested and then not read does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from txlake.commit.catalog_managed import LogFiles
from txlake.commit.parallel import begin
from txlake.ports import StoredObject


class RequestedFiles:
    """LogFiles of which some are requested at once, from a store over a network.

    For one reading of the log: a requested file is read as it was then. From other stores files are
    read when they are needed.
    """

    def __init__(self, files: LogFiles, paths: Iterable[str] = ()) -> None:
        self._files = files
        self._waits: dict[str, Callable[[], bytes]] = {}
        self.request(paths)

    @property
    def url(self) -> str:
        return self._files.url

    def request(self, paths: Iterable[str]) -> None:
        """Request files, unless they are requested already."""
        for path in paths:
            if path not in self._waits:
                self._waits[path] = begin(partial(self._files.get, path), store=self._files)

    def get(self, path: str) -> bytes:
        """Return the file's bytes, and forget that it was requested. Raises FileNotFoundError."""
        wait = self._waits.pop(path, None)
        if wait is not None:
            try:
                return wait()
            except FileNotFoundError:
                pass  # it may have been made since it was requested
        return self._files.get(path)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        if path in self._waits:
            return self.get(path)[offset : offset + length]
        return self._files.get_range(path, offset, length)

    def head(self, path: str) -> StoredObject | None:
        return self._files.head(path)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        return self._files.list(prefix, start_after, before)
