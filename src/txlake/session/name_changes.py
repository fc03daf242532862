"""A transaction's own changes of the catalog's names: tables and views that it creates, drops and
renames, and the new queries of views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlake.catalog.views import ViewEntry
from txlake.ports import NameChange
from txlake.session.engine import Handle

QualifiedName = tuple[str, str]
"""Database and name, in any letter case."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """What names mean to a transaction that changed them, and the changes in their order.

    Attributes:
        meanings: by name in lower case; None for a name that means no table any more.
        views: by name in lower case, the views that it wrote; None for a name that means no view
            any more.
    """

    meanings: Mapping[QualifiedName, Handle | None] = field(default_factory=dict)
    views: Mapping[QualifiedName, ViewEntry | None] = field(default_factory=dict)
    changes: tuple[NameChange, ...] = ()

    def then(
        self,
        change: NameChange,
        *,
        tables: Mapping[QualifiedName, Handle | None] | None = None,
        views: Mapping[QualifiedName, ViewEntry | None] | None = None,
    ) -> NameChanges:
        """Return these changes followed by another one, after which names mean these tables and
        views.
        """
        meanings = {_folded(name): handle for name, handle in (tables or {}).items()}
        written = {_folded(name): entry for name, entry in (views or {}).items()}
        return NameChanges(
            {**self.meanings, **meanings}, {**self.views, **written}, (*self.changes, change)
        )

    def has_view(self, name: QualifiedName) -> bool:
        """Return whether the transaction changed which view a name means."""
        return _folded(name) in self.views

    def view_of(self, name: QualifiedName) -> ViewEntry | None:
        """Return the view that a changed name means; None if it means none any more.

        Raises KeyError for a name that wasn't changed (`has_view`).
        """
        return self.views[_folded(name)]

    def views_in(self, database: str) -> dict[str, ViewEntry | None]:
        """Return the views of the names changed in a database, by lower-case name; None for a name
        that has no view any more.
        """
        views = self.views.items()
        return {name: entry for (owner, name), entry in views if owner == database.lower()}

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
