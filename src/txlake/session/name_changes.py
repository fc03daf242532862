"""A transaction's own changes of the catalog's names: tables that it creates, drops and renames."""

from __future__ import annotations

from dataclasses import dataclass, field

from txlake.ports import NameChange
from txlake.session.engine import Handle

QualifiedName = tuple[str, str]
"""Database and name, in any letter case."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """What names mean to a transaction that changed them, and the changes in their order.

    Attributes:
        meanings: by name in lower case; None for a name that means no table any more.
    """

    meanings: dict[QualifiedName, Handle | None] = field(default_factory=dict)
    changes: tuple[NameChange, ...] = ()

    def then(self, change: NameChange, meanings: dict[QualifiedName, Handle | None]) -> NameChanges:
        """Return these changes followed by another one, after which names have these meanings."""
        folded = {_folded(name): handle for name, handle in meanings.items()}
        return NameChanges({**self.meanings, **folded}, (*self.changes, change))

    def has(self, name: QualifiedName) -> bool:
        """Return whether the transaction changed the meaning of a name."""
        return _folded(name) in self.meanings

    def meaning_of(self, name: QualifiedName) -> Handle | None:
        """Return the table that a changed name means; None if it means none any more.

        Raises KeyError for a name that wasn't changed (`has`).
        """
        return self.meanings[_folded(name)]

    def in_database(self, database: str) -> dict[str, Handle | None]:
        """Return the meanings of the names changed in a database, by lower-case table name; None
        for a name that has no table any more.
        """
        meanings = self.meanings.items()
        return {name: handle for (owner, name), handle in meanings if owner == database.lower()}


def _folded(name: QualifiedName) -> QualifiedName:
    return (name[0].lower(), name[1].lower())
