"""The first table of a program, and a table's present shape.

Statements are generated for a `TableShape`, which is read from the log of Delta Spark's table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.differential.values import LITERALS, PARTITIONING, is_nested, of_type

_SQL_NAMES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
}
_NAMES = ("n", "s", "größe", "Mixed", "d", "v", "w", "_x")
_MAPPED_NAMES = ("a b", "x.y", "p,q")
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as statements name it."""

    name: str
    type: str
    is_nullable: bool = True
    default: str | None = None
    generated: str | None = None

    @property
    def quoted(self) -> str:
        """The name in backquotes."""
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table's columns and properties."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns to which statements give values."""
        return tuple(one for one in self.columns if one.generated is None)

    @property
    def generated(self) -> tuple[Column, ...]:
        """The generated columns."""
        return tuple(one for one in self.columns if one.generated is not None)

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        """The partition columns."""
        return tuple(one for one in self.columns if one.name in self.partition_by)

    @property
    def is_mapped(self) -> bool:
        """Whether columns can be renamed and dropped."""
        return self.properties.get("delta.columnMapping.mode", "none") != "none"


def read_shape(schema: Mapping[str, Any], partition_by: list[str], properties: Any) -> TableShape:
    """Return the shape by the log's metadata."""
    columns = []
    for item in schema["fields"]:
        about = item.get("metadata", {})
        columns.append(
            Column(
                item["name"],
                about.get(CHAR_VARCHAR, "").upper() or sql_type(item["type"]),
                item["nullable"],
                about.get("CURRENT_DEFAULT"),
                about.get("delta.generationExpression"),
            )
        )
    return TableShape(tuple(columns), tuple(partition_by), dict(properties))


def sql_type(stored: Any) -> str:
    """Return a type of the log in SQL."""
    if isinstance(stored, str):
        return re.sub(r"\s", "", _SQL_NAMES.get(stored, stored.upper()))
    match stored["type"]:
        case "array":
            return f"ARRAY<{sql_type(stored['elementType'])}>"
        case "map":
            return f"MAP<{sql_type(stored['keyType'])},{sql_type(stored['valueType'])}>"
        case _:
            fields = (f"{item['name']}:{sql_type(item['type'])}" for item in stored["fields"])
            return f"STRUCT<{','.join(fields)}>"


def create(rng: Random) -> str:
    """Return the statement that creates a program's table."""
    is_mapped = rng.random() < 0.35
    names = list(_NAMES + (_MAPPED_NAMES if is_mapped else ()))
    rng.shuffle(names)
    features: dict[str, str] = {
        "delta.enableDeletionVectors": rng.choice(("true", "true", "false"))
    }
    if is_mapped:
        features["delta.columnMapping.mode"] = rng.choice(("name", "name", "id"))
    columns = ["id INT" + (" NOT NULL" if rng.random() < 0.2 else "")]
    drawn: list[tuple[str, str]] = [("id", "INT")]
    has_defaults = False
    for name in names[: rng.randint(1, 5)]:
        kind = rng.choice(list(LITERALS))
        text = f"`{name}` {kind}"
        if rng.random() < 0.12:
            text += " NOT NULL"
        if rng.random() < 0.15 and not is_nested(kind):
            text += f" DEFAULT {of_type(rng, kind)}"
            has_defaults = True
        if rng.random() < 0.1:
            text += " COMMENT 'what it''s for'"
        columns.append(text)
        drawn.append((name, kind))
    if rng.random() < 0.15:
        columns.append("twice BIGINT GENERATED ALWAYS AS (CAST(id AS BIGINT) * 2)")
    partition = ""
    could = [name for name, kind in drawn if kind in PARTITIONING]
    if len(drawn) > 1 and rng.random() < 0.5:
        chosen = rng.sample(could, min(len(could), rng.choice((1, 1, 2)), len(drawn) - 1))
        partition = f" PARTITIONED BY ({', '.join(f'`{name}`' for name in chosen)})"
    if has_defaults and rng.random() < 0.95:
        features["delta.feature.allowColumnDefaults"] = "supported"
    for key, chance in _SOMETIMES.items():
        if rng.random() < chance:
            features[key] = "true"
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in features.items())
    comment = " COMMENT 'a table'" if rng.random() < 0.1 else ""
    return (
        f"CREATE TABLE {{t}} ({', '.join(columns)}) USING DELTA{partition}{comment} "
        f"TBLPROPERTIES ({properties})"
    )


_SOMETIMES = {
    "delta.enableTypeWidening": 0.3,
    "delta.appendOnly": 0.05,
    "delta.enableInCommitTimestamps": 0.1,
    "delta.enableRowTracking": 0.1,
}
