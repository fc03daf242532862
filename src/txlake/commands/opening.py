"""A table is opened to other engines: property `delta.feature.catalogManaged` = `supported`.

Owns how a statement asks for it. The request isn't a property that is stored: the lake's catalog
stages what opens the table (`membership.attachment.mark`), beside what else the statement does.
"""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.membership.attachment import mark
from txlake.protocol.features import CATALOG_MANAGED
from txlake.protocol.properties import FEATURE_PREFIX
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.statements import AddFeature, AlterStatement, Properties, SetProperties

_KEY = f"{FEATURE_PREFIX}{CATALOG_MANAGED}".lower()


def split_request(properties: Properties) -> tuple[bool, Properties]:
    """Whether properties ask for an open table, and the others.

    Raises InvalidRequest for another value than the one that asks.
    """
    rest = tuple((key, text) for key, text in properties if key.lower() != _KEY)
    for key, text in properties:
        if key.lower() == _KEY and text.lower() not in ("supported", "enabled"):
            raise InvalidRequest(f"table property {key!r}: expected 'supported', found {text!r}")
    return len(rest) < len(properties), rest


def asked_by(statement: AlterStatement) -> tuple[bool, AlterStatement | None]:
    """Whether an ALTER TABLE asks for an open table, and what it does besides; None: nothing."""
    if isinstance(statement, AddFeature):
        asks = statement.feature.lower() == CATALOG_MANAGED.lower()
        return asks, None if asks else statement
    if not isinstance(statement, SetProperties):
        return False, statement
    asks, rest = split_request(statement.properties)
    return asks, SetProperties(statement.table, rest) if rest or not asks else None


def open_to_others(context: Context, handle: Handle, operation: str) -> None:
    """Stages what lets other engines write a table of the lake, unless they do already.

    Raises InvalidRequest for a table that is named by its place.
    """
    if not handle.in_lake:
        raise InvalidRequest(
            f"{handle.name}: a table is {CATALOG_MANAGED} in a lake, whose catalog makes its "
            "versions; attach it to the lake first (lake.attach)"
        )
    mark(context.transaction, handle, operation, opens=True)
