"""How Delta Spark comes to write with each of its table features on, and those that it can't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PLAIN = "id BIGINT, k BIGINT, s STRING"
VARIANT = "id BIGINT, k BIGINT, s VARIANT"
CHANGES = ("UPDATE {t} SET k = k + 2 WHERE id = 3", "DELETE FROM {t} WHERE id = 4")

POINT = "X'0101000000000000000000F03F0000000000000040'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A table that uses some features.

    Attributes:
        features: those that it uses.
        listed: those of them that a table only has when it is told to.
        columns, clause, properties: what CREATE TABLE says.
        value: what column `s` gets, in terms of `id`.
        shown: `s` as text.
        shown_here: the same of what txlake reads, where that is of another type.
        changes: what Delta Spark does after its INSERT.
    """

    features: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    columns: str = PLAIN
    clause: str = ""
    properties: tuple[str, ...] = ()
    value: str = "concat('s', id)"
    shown: str = "s"
    shown_here: str | None = None
    changes: tuple[str, ...] = CHANGES


RECIPES = (
    Recipe(
        features=(
            "allowColumnDefaults",
            "checkConstraints",
            "generatedColumns",
            "invariants",
            "timestampNtz",
        ),
        listed=("allowColumnDefaults",),
        columns=(
            "id BIGINT NOT NULL, k BIGINT, s STRING, d STRING DEFAULT 'd', "
            "g BIGINT GENERATED ALWAYS AS (k + 1), "
            "at TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ'1969-12-31 23:59:59.5'"
        ),
        properties=("delta.constraints.positive=k >= 0",),
        changes=(*CHANGES, "OPTIMIZE {t}"),
    ),
    Recipe(
        features=(
            "clustering",
            "columnMapping",
            "deletionVectors",
            "domainMetadata",
            "inCommitTimestamp",
            "rowTracking",
            "typeWidening",
            "v2Checkpoint",
            "vacuumProtocolCheck",
        ),
        listed=("vacuumProtocolCheck",),
        columns="id BIGINT, k INT, s STRING",
        clause="CLUSTER BY (id)",
        properties=(
            "delta.columnMapping.mode=name",
            "delta.enableDeletionVectors=true",
            "delta.enableInCommitTimestamps=true",
            "delta.enableRowTracking=true",
            "delta.enableTypeWidening=true",
            "delta.checkpointPolicy=v2",
        ),
        changes=(*CHANGES, "ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT", "OPTIMIZE {t}"),
    ),
    Recipe(
        features=("appendOnly",),
        properties=("delta.appendOnly=true",),
        changes=("INSERT INTO {t} VALUES (6, 6, 's6')", "OPTIMIZE {t}"),
    ),
    Recipe(
        features=("typeWidening-preview",),
        listed=("typeWidening-preview",),
        columns="id BIGINT, k INT, s STRING",
        properties=("delta.enableTypeWidening=true",),
        changes=("ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT", CHANGES[0]),
    ),
    Recipe(features=("changeDataFeed",), properties=("delta.enableChangeDataFeed=true",)),
    Recipe(
        features=("identityColumns",),
        columns=f"{PLAIN}, g BIGINT GENERATED ALWAYS AS IDENTITY",
    ),
    Recipe(
        features=("variantType", "variantShredding"),
        listed=("variantShredding",),
        columns=VARIANT,
        properties=("delta.enableVariantShredding=true",),
        value="parse_json(concat('{\"a\": ', id, '}'))",
        shown="to_json(s)",
    ),
    Recipe(
        features=("variantType-preview", "variantShredding-preview"),
        listed=("variantType-preview", "variantShredding-preview"),
        columns=VARIANT,
        properties=("delta.enableVariantShredding=true",),
        value="parse_json(concat('[', id, ']'))",
        shown="to_json(s)",
    ),
    Recipe(
        features=("icebergCompatV1",),
        properties=("delta.enableIcebergCompatV1=true", "delta.columnMapping.mode=name"),
    ),
    Recipe(
        features=("icebergCompatV2",),
        columns="id BIGINT, k BIGINT, s ARRAY<ARRAY<BIGINT>>",
        clause="PARTITIONED BY (k)",
        properties=("delta.enableIcebergCompatV2=true",),
        value="array(array(id))",
        shown="to_json(s)",
    ),
    Recipe(
        features=("icebergCompatV3",),
        properties=(
            "delta.enableIcebergCompatV3=true",
            "delta.columnMapping.mode=name",
            "delta.enableRowTracking=true",
        ),
    ),
    Recipe(
        features=("materializePartitionColumns",),
        clause="PARTITIONED BY (k)",
        properties=("delta.enableMaterializePartitionColumnsFeature=true",),
    ),
    Recipe(features=("checkpointProtection",), listed=("checkpointProtection",)),
    Recipe(features=("coordinatedCommits-preview",), listed=("coordinatedCommits-preview",)),
    # txlake gives shapes in the bytes that they are stored in.
    Recipe(
        features=("geospatial",),
        columns="id BIGINT, k BIGINT, s GEOMETRY(4326)",
        value=f"ST_GeomFromWKB({POINT}, 4326)",
        shown="hex(ST_AsBinary(s))",
        shown_here="hex(s)",
    ),
    Recipe(
        features=("geospatial-dev",),
        listed=("geospatial-dev",),
        columns="id BIGINT, k BIGINT, s GEOGRAPHY(4326)",
        value=f"ST_GeogFromWKB({POINT})",
        shown="hex(ST_AsBinary(s))",
        shown_here="hex(s)",
    ),
)

# What Delta Spark lets nobody use in a table by path, and what it says then.
REFUSED: Mapping[str, str] = {
    "adaptiveMetadata-preview": "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED",
    "catalogManaged": "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_CREATION",
}
