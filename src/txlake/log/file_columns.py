"""What skipping looks at: columns of files, one at a time. An Arrow table is such a thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa


class Chunks(Protocol):
    """The values of one column."""

    def iterchunks(self) -> Iterator[pa.Array]:
        """Arrays, which together have a value for each file."""
        ...


class FileColumns(Protocol):
    """Files by their columns in FILES_SCHEMA, decoded when they are asked for."""

    @property
    def num_rows(self) -> int:
        """How many files."""
        ...

    def column(self, name: str) -> Chunks:
        """One column."""
        ...

    def filter(self, mask: pa.BooleanArray) -> FileColumns:
        """The files for which the mask is true."""
        ...
