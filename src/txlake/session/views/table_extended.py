"""The details in SHOW TABLE EXTENDED of a table or view: lines of `key: value`, in Spark's format.

Programs parse the lines: dbt-spark reads the provider, the type and the columns from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlake.protocol.types import Array, DataType, Map, Primitive, Struct

_CATALOG = "spark_catalog"


def extended_text(
    database: str,
    name: str,
    *,
    kind: str,
    location: str | None = None,
    text: str | None = None,
    schema: Struct | None = None,
) -> str:
    """Return the details of one table or view.

    Args:
        kind: MANAGED, EXTERNAL or VIEW.
        location: the table's location.
        text: the view's query.
        schema: the columns, if known.
    """
    lines = [f"Catalog: {_CATALOG}", f"Database: {database}", f"Table: {name}", f"Type: {kind}"]
    if location is not None:
        lines += ["Provider: delta", f"Location: {location}"]
    if text is not None:
        lines.append(f"View Text: {text}")
    if schema is not None:
        lines += ["Schema: root", *_tree(schema, " ")]
    return "\n".join(lines) + "\n"


def _tree(kind: DataType, indent: str) -> Iterator[str]:
    """Yield the lines of a type's tree, as DataFrame.printSchema draws it."""
    match kind:
        case Struct():
            for item in kind:
                yield f"{indent}|-- {item.name}: {_name(item.type)} ({_nullable(item.nullable)})"
                yield from _tree(item.type, f"{indent}|    ")
        case Array():
            nullability = f"(containsNull = {_word(kind.contains_null)})"
            yield f"{indent}|-- element: {_name(kind.element)} {nullability}"
            yield from _tree(kind.element, f"{indent}|    ")
        case Map():
            yield f"{indent}|-- key: {_name(kind.key)}"
            yield from _tree(kind.key, f"{indent}|    ")
            nullability = f"(valueContainsNull = {_word(kind.value_contains_null)})"
            yield f"{indent}|-- value: {_name(kind.value)} {nullability}"
            yield from _tree(kind.value, f"{indent}|    ")


def _nullable(value: bool) -> str:
    return f"nullable = {_word(value)}"


def _word(value: bool) -> str:
    return "true" if value else "false"


def _name(kind: DataType) -> str:
    """Return a type's name in the tree; a nested type has only `struct`, `array` or `map`."""
    if isinstance(kind, Primitive):
        return kind.name
    return type(kind).__name__.lower()
