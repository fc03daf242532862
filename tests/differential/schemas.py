"""The table that a program begins with, and what a table is like meanwhile.

A `Shape` is what statements are drawn for: it is read from the log of Delta Spark's table.
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
    """A column as a statement may name it."""

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
class Shape:
    """A table's columns and properties."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that a statement gives values for."""
        return tuple(one for one in self.columns if one.generated is None)

    @property
    def generated(self) -> tuple[Column, ...]:
        """The columns that are computed."""
        return tuple(one for one in self.columns if one.generated is not None)

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        """Those that split the table."""
        return tuple(one for one in self.columns if one.name in self.partition_by)

    @property
    def is_mapped(self) -> bool:
        """Whether columns can be renamed and dropped."""
        return self.properties.get("delta.columnMapping.mode", "none") != "none"


def shape_of(schema: Mapping[str, Any], partition_by: list[str], properties: Any) -> Shape:
    """The shape that a log's metadata tells."""
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
    return Shape(tuple(columns), tuple(partition_by), dict(properties))


def sql_type(stored: Any) -> str:
    """A type of the log in SQL's words."""
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


def create(luck: Random) -> str:
    """The statement that makes the table of a program."""
    is_mapped = luck.random() < 0.35
    names = list(_NAMES + (_MAPPED_NAMES if is_mapped else ()))
    luck.shuffle(names)
    features: dict[str, str] = {
        "delta.enableDeletionVectors": luck.choice(("true", "true", "false"))
    }
    if is_mapped:
        features["delta.columnMapping.mode"] = luck.choice(("name", "name", "id"))
    columns = ["id INT" + (" NOT NULL" if luck.random() < 0.2 else "")]
    drawn: list[tuple[str, str]] = [("id", "INT")]
    has_defaults = False
    for name in names[: luck.randint(1, 5)]:
        kind = luck.choice(list(LITERALS))
        text = f"`{name}` {kind}"
        if luck.random() < 0.12:
            text += " NOT NULL"
        if luck.random() < 0.15 and not is_nested(kind):
            text += f" DEFAULT {of_type(luck, kind)}"
            has_defaults = True
        if luck.random() < 0.1:
            text += " COMMENT 'what it''s for'"
        columns.append(text)
        drawn.append((name, kind))
    if luck.random() < 0.15:
        columns.append("twice BIGINT GENERATED ALWAYS AS (CAST(id AS BIGINT) * 2)")
    partition = ""
    could = [name for name, kind in drawn if kind in PARTITIONING]
    if len(drawn) > 1 and luck.random() < 0.5:
        chosen = luck.sample(could, min(len(could), luck.choice((1, 1, 2)), len(drawn) - 1))
        partition = f" PARTITIONED BY ({', '.join(f'`{name}`' for name in chosen)})"
    if has_defaults and luck.random() < 0.95:
        features["delta.feature.allowColumnDefaults"] = "supported"
    for key, chance in _SOMETIMES.items():
        if luck.random() < chance:
            features[key] = "true"
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in features.items())
    comment = " COMMENT 'a table'" if luck.random() < 0.1 else ""
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
