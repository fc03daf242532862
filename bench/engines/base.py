"""What is asked of an engine. One that can't do a thing isn't asked: the registry names who is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bench.sources.rows import Total

Row = tuple[object, ...]
FEW = 3
"""Rows that a small INSERT has."""
MERGES = ("insert", "insert by two clauses", "delete", "upsert")


class Engine(ABC):
    """One engine. Tables are folders."""

    @abstractmethod
    def total(self, table: Path) -> Total:
        """The table's rows, the sum of `k` and the sum of `v`."""

    @abstractmethod
    def append(self, table: Path, files: Sequence[Path]) -> None:
        """Append the rows of Parquet files; makes the table when it isn't there."""

    @abstractmethod
    def attach(self, tables: Mapping[str, Path]) -> None:
        """Give tables the names that queries know them by."""

    @abstractmethod
    def query(self, text: str) -> list[Row]:
        """The rows of a query over attached tables."""

    def row(self, table: Path, row: int) -> list[Row]:
        """The row of that `id`: its `id`, `k`, `v` and `s`."""
        raise NotImplementedError

    def as_one(self) -> AbstractContextManager[object]:
        """What is done inside is one transaction, where the engine has such."""
        return nullcontext()

    def beside(self) -> Engine:
        """The same engine for a thread of its own."""
        return self

    def is_conflict(self, error: Exception) -> bool:
        """Whether a statement failed because another writer was faster."""
        return False

    def update(self, table: Path, where: str) -> None:
        """Add one to `v` where the condition holds."""
        raise NotImplementedError

    def delete(self, table: Path, where: str) -> None:
        """Delete rows."""
        raise NotImplementedError

    def merge(self, table: Path, changes: Path) -> None:
        """By `id`: adds the file's `v` to the table's, or inserts a row with `k = 0`, `s = ''`."""
        raise NotImplementedError

    def merge_case(self, table: Path, changes: Path, kind: str) -> None:
        """A case of Delta's own benchmark: a MERGE by `id` and `k` of a file with the columns of
        the table; `kind` is one of MERGES.
        """
        raise NotImplementedError

    def delete_keys(self, table: Path, column: str, keys: Path) -> None:
        """Delete the rows whose column holds an `orderkey` of the file."""
        raise NotImplementedError

    def insert(self, table: Path, first: int) -> None:
        """Insert FEW rows: `id` from `first` on, `k = 1`, `v = 0.5`, `s = 'few'`."""
        raise NotImplementedError

    def compact(self, table: Path) -> None:
        """Make few large files of many, and of files with deletion vectors."""
        raise NotImplementedError

    def maintain(self) -> None:
        """Do what the attached tables need by now, by the engine's own judgement."""
        raise NotImplementedError
