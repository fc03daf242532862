"""Whether a table's rows have to be checked or completed by Spark."""

from __future__ import annotations

from collections.abc import Collection

from txlake.errors import InvalidRequest
from txlake.local.char_types import is_bounded
from txlake.log.snapshot import Snapshot
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, Struct

GENERATION_EXPRESSION = "delta.generationExpression"


CURRENT_DEFAULT = "CURRENT_DEFAULT"


_INVARIANTS = "delta.invariants"


NOT_NULL = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL"


def has_rules(snapshot: Snapshot) -> bool:
    """Return whether Spark must check or complete rows: more than NOT NULL at the top level.

    CHECK constraints, invariants, generated and default columns, CHAR and VARCHAR, and NOT NULL
    fields of structs; identity columns don't count.
    """
    return any(_needs_spark(item) for item in snapshot.schema) or bool(
        snapshot.properties.constraints
    )


def depends_on_values(snapshot: Snapshot) -> bool:
    """Return whether an expression of the table computes a column or may refuse a row: a generated
    column, an invariant or a CHECK constraint.
    """
    expressions = (GENERATION_EXPRESSION, _INVARIANTS)
    return bool(snapshot.properties.constraints) or any(
        key in item.metadata for item in snapshot.schema for key in expressions
    )


def _needs_spark(item: Field) -> bool:
    """Return whether values of the column are computed or checked by Spark: see `has_rules`."""
    keys = (GENERATION_EXPRESSION, CURRENT_DEFAULT, _INVARIANTS)
    nested_not_null = isinstance(item.type, Struct) and _requires_fields(item.type)
    return nested_not_null or any(key in item.metadata for key in keys) or is_bounded(item)


def _requires_fields(struct: Struct) -> bool:
    """Return whether a field of the struct, or of one inside it, is NOT NULL."""
    return any(
        not item.nullable or (isinstance(item.type, Struct) and _requires_fields(item.type))
        for item in struct
    )


def require_given(snapshot: Snapshot, given: Collection[str]) -> None:
    """Raise InvalidRequest, naming the column, if a NOT NULL column that has no default isn't
    `given`.

    `given` has column names in the table's spelling. Generated and identity columns count as having
    a default.
    """
    for item in snapshot.schema:
        if item.name not in given:
            _require_default(item, snapshot)


def _require_default(item: Field, snapshot: Snapshot) -> None:
    """Raise InvalidRequest for a NOT NULL column that has no default and doesn't fill itself."""
    if not (item.nullable or _fills_itself(item)):
        raise InvalidRequest(
            f"{snapshot.table}: {NOT_NULL} of column {item.name!r} is violated: it has no default, "
            "and no value is given; nothing was written"
        )


def _fills_itself(item: Field) -> bool:
    """Return whether rows without the column get a value: it is generated, an identity or has a
    default.
    """
    return (
        GENERATION_EXPRESSION in item.metadata
        or CURRENT_DEFAULT in item.metadata
        or is_identity(item)
    )
