"""A request as a page's function sees it, with access to its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from txlake.console.visitors import Visitor
from txlake.errors import InvalidRequest
from txlake.session.engine import Engine, Handle
from txlake.session.session import Session

_TEXT_MAX = 10_000
_NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A request for a page, or a submitted form.

    Attributes:
        path: the parameters of its path.
        query: the parameters of its query string.
        form: the form's fields.
    """

    session: Session
    visitor: Visitor
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        """Return the lake's engine."""
        return self.session.engine

    def number(self, name: str, *, default: int | None = None) -> int:
        """Return a form's field, else a query parameter, as a number from 0 on.

        `default` is for a missing or empty one. Raises InvalidRequest for another text, and for a
        missing one without a default.
        """
        text = self.form.get(name, self.query.get(name, ""))
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) > _NUMBER_MAX:
            raise InvalidRequest(f"{name}: expected a number from 0 on, found {text!r:.60}")
        return int(text)

    def text(self, name: str) -> str:
        """Return a form's field without spaces around it.

        Raises InvalidRequest if it is missing, empty or longer than 10,000 characters.
        """
        text = self.form.get(name, "").strip()
        if not text or len(text) > _TEXT_MAX:
            raise InvalidRequest(f"{name}: expected a text of 1 to {_TEXT_MAX} characters")
        return text

    def handle(self, name: str) -> Handle:
        """Return the lake's table of the name `database.table`, both parts required.

        Raises InvalidRequest if it doesn't exist.
        """
        database, _, table = name.partition(".")
        entry = self.engine.catalog.find(database, table) if table else None
        if entry is None:
            raise InvalidRequest(f"there is no table {name!r:.120}: expected database.table")
        return self.engine.at_entry(entry)


TemplateValues = Mapping[str, object]
View = Callable[[PageRequest], TemplateValues]
"""Returns the values of a page's template."""
Action = Callable[[PageRequest], str]
"""Carries out a form; returns the path to redirect to."""
