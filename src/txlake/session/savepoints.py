"""The savepoints of one transaction, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txlake.commit.part_states import TableSavepoint
from txlake.errors import InvalidRequest
from txlake.session.lineage import Reading
from txlake.session.name_changes import NameChanges

Writes = tuple[tuple[str, Reading | None], ...]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The state of a transaction that ROLLBACK TO restores.

    Attributes:
        tables: each table's staged changes, by key.
        effects: the number of effects that run after the commit.
        writes: the writes of statements (`Transaction.writes`).
    """

    name: str
    tables: Mapping[str, TableSavepoint]
    effects: int
    names: NameChanges
    writes: Writes = ()


class Savepoints:
    """A stack of savepoints; the later one of two with the same name hides the other."""

    def __init__(self) -> None:
        self._savepoints: list[Savepoint] = []

    def add(self, savepoint: Savepoint) -> None:
        """Add a savepoint on top."""
        self._savepoints.append(savepoint)

    def restore(self, name: str) -> Savepoint:
        """Return the newest savepoint of a name, in any letter case, and forget the later ones.

        The savepoint itself stays. Raises InvalidRequest if there is none.
        """
        place = self._place_of(name)
        del self._savepoints[place + 1 :]
        return self._savepoints[place]

    def release(self, name: str) -> None:
        """Forget the newest savepoint of a name, in any letter case, and the later ones.

        Raises InvalidRequest if there is none.
        """
        del self._savepoints[self._place_of(name) :]

    def _place_of(self, name: str) -> int:
        """Return the position of the newest savepoint of a name, in any letter case.

        Raises InvalidRequest if there is none.
        """
        for place in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[place].name.lower() == name.lower():
                return place
        names = ", ".join(savepoint.name for savepoint in self._savepoints) or "none"
        raise InvalidRequest(f"there is no savepoint {name!r}; there are: {names}")
