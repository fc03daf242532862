"""A request as a page sees it, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from txlake.console.safety import Visitor
from txlake.errors import InvalidRequest
from txlake.session.engine import Engine, Handle
from txlake.session.session import Session

_TEXT_MAX = 10_000
_NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page, or a form that was sent.

    Attributes:
        path: the parameters of its path.
        query: those of its query string.
        form: the form's fields.
    """

    session: Session
    visitor: Visitor
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        """The lake's."""
        return self.session.engine

    def number(self, name: str, *, otherwise: int | None = None) -> int:
        """A parameter or a field that is a number. Raises InvalidRequest for another text."""
        text = self.form.get(name, self.query.get(name, ""))
        if not text and otherwise is not None:
            return otherwise
        if not (text.isascii() and text.isdecimal()) or int(text) > _NUMBER_MAX:
            raise InvalidRequest(f"{name}: expected a number from 0 on, found {text!r:.60}")
        return int(text)

    def text(self, name: str) -> str:
        """A field that isn't empty. Raises InvalidRequest."""
        text = self.form.get(name, "").strip()
        if not text or len(text) > _TEXT_MAX:
            raise InvalidRequest(f"{name}: expected a text of 1 to {_TEXT_MAX} characters")
        return text

    def handle(self, name: str) -> Handle:
        """The lake's table of that name, `database.table`. Raises InvalidRequest without one."""
        database, _, table = name.partition(".")
        entry = self.engine.catalog.find(database, table) if table else None
        if entry is None:
            raise InvalidRequest(f"there is no table {name!r:.120}: expected database.table")
        return self.engine.at_entry(entry)


Values = Mapping[str, object]
Look = Callable[[Visit], Values]
"""What a page shows."""
Act = Callable[[Visit], str]
"""Does what a form asks for; the path to go on to."""
