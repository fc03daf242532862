"""pyiceberg's FileIO over a table's store: whole objects, read into memory and written at once.

Iceberg names files by absolute, decoded locations, a store by paths below its root.
"""

from __future__ import annotations

import io
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from txlake.ports import PutOutcome, Store
from txlake.protocol.paths import absolute_url, decode_path


def location_of(table_url: str, path_in_log: str = "") -> str:
    """Return the location by which Iceberg names a file of the log, or the table itself.

    `table_url` and the path are percent-encoded, as in the log; the location isn't.
    """
    return decode_path(absolute_url(table_url, path_in_log) if path_in_log else table_url)


class StoreIO(FileIO):
    """Reads and writes metadata files below one table's root."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._root = f"{location_of(store.url)}/"

    def new_input(self, location: str) -> InputFile:
        return StoreInput(self._store, location, self._path(location))

    def new_output(self, location: str) -> OutputFile:
        return StoreOutput(self._store, location, self._path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        named = location if isinstance(location, str) else location.location
        self._store.delete([self._path(named)])

    def _path(self, location: str) -> str:
        """Return the path below the root. Raises FileNotFoundError for another place."""
        if not location.startswith(self._root):
            raise FileNotFoundError(f"{location}: expected a file below {self._root}")
        return location.removeprefix(self._root)


class StoreInput(InputFile):
    """An object of the store, requested when it is opened."""

    def __init__(self, store: Store, location: str, path: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = path

    def __len__(self) -> int:
        stored = self._store.head(self._path)
        if stored is None:
            raise FileNotFoundError(self.location)
        return stored.size_bytes

    def exists(self) -> bool:
        return self._store.head(self._path) is not None

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._store.get(self._path))


class StoreOutput(OutputFile):
    """An object that is put, if absent, when its stream is closed. Its name must be new."""

    def __init__(self, store: Store, location: str, path: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = path
        self._size_bytes = 0

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        return self._store.head(self._path) is not None

    def to_input_file(self) -> InputFile:
        return StoreInput(self._store, self.location, self._path)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _PutAtEnd(self)

    def put(self, data: bytes) -> None:
        """Put the whole object; a name that is new can be put again when a reply was lost."""
        self._size_bytes = len(data)
        if self._store.put_if_absent(self._path, data) is PutOutcome.UNKNOWN:
            self._store.put(self._path, data)


class _PutAtEnd(io.BytesIO):
    """Bytes that become an object when they are complete."""

    def __init__(self, output: StoreOutput) -> None:
        super().__init__()
        self._output = output

    def __enter__(self) -> _PutAtEnd:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def close(self) -> None:
        if not self.closed:
            self._output.put(self.getvalue())
        super().close()
