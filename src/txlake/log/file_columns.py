"""The interface of file skipping to files: columns, one at a time. An Arrow table satisfies it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa


class Chunks(Protocol):
    """The values of one column."""

    def iterchunks(self) -> Iterator[pa.Array]:
        """Yield arrays that together have one value for each file."""
        ...


class FileColumns(Protocol):
    """Files by their columns in FILES_SCHEMA, decoded on request."""

    @property
    def num_rows(self) -> int:
        """The number of files."""
        ...

    def column(self, name: str) -> Chunks:
        """Return one column."""
        ...

    def filter(self, mask: pa.BooleanArray) -> FileColumns:
        """Return the files for which the mask is true."""
        ...
