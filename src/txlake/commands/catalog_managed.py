"""Opening a table to other engines by the property `delta.feature.catalogManaged` = `supported`.

Owns how a statement requests it. The request isn't stored as a property: the actions that open the
table (`session.membership.attachment.stage_owner`) are staged beside the statement's other changes.
"""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.protocol.features import CATALOG_MANAGED
from txlake.protocol.properties import FEATURE_PREFIX
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.membership.attachment import stage_owner
from txlake.sql.statements import AddFeature, AlterStatement, Properties, SetProperties

_KEY = f"{FEATURE_PREFIX}{CATALOG_MANAGED}".lower()


def split_open_request(properties: Properties) -> tuple[bool, Properties]:
    """Return whether properties request an open table, and the remaining properties.

    Raises InvalidRequest for a value other than `supported` or `enabled`.
    """
    rest = tuple((key, text) for key, text in properties if key.lower() != _KEY)
    for key, text in properties:
        if key.lower() == _KEY and text.lower() not in ("supported", "enabled"):
            raise InvalidRequest(f"table property {key!r}: expected 'supported', found {text!r}")
    return len(rest) < len(properties), rest


def split_alter_request(statement: AlterStatement) -> tuple[bool, AlterStatement | None]:
    """Return whether an ALTER TABLE requests an open table, and the rest of the statement.

    The rest is None if that was all. Raises as `split_open_request`.
    """
    if isinstance(statement, AddFeature):
        requested = statement.feature.lower() == CATALOG_MANAGED.lower()
        return requested, None if requested else statement
    if not isinstance(statement, SetProperties):
        return False, statement
    requested, rest = split_open_request(statement.properties)
    return requested, SetProperties(statement.table, rest) if rest or not requested else None


def open_to_others(context: Context, handle: Handle, operation: str) -> None:
    """Stage what lets other engines write a table of the lake, unless the table is open already.

    `operation` is the commit's in the history. Raises InvalidRequest for a path table.
    """
    if not handle.in_lake:
        raise InvalidRequest(
            f"{handle.name}: a table is {CATALOG_MANAGED} in a lake, whose catalog makes its "
            "versions; attach it to the lake first (lake.attach)"
        )
    stage_owner(context.transaction, handle, operation, opens=True)
