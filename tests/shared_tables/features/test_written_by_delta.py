"""Every table feature that Delta Spark knows: we read such a table right or refuse it by name.

The list of features is the one of Delta Spark's jar, so that a new one can't be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.shared_tables.audit import latest
from tests.shared_tables.workers import Refused, Worker

pytestmark = pytest.mark.no_interop("Delta Spark reads every version here")
PLAIN = "id BIGINT, k BIGINT, s STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a table comes to use a feature, beyond listing it."""

    columns: str = PLAIN
    properties: tuple[str, ...] = ()
    clause: str = ""
    values: tuple[str, str] = ("'a'", "'b'")


RECIPES: Mapping[str, Recipe] = {
    "allowColumnDefaults": Recipe(columns="id BIGINT, k BIGINT, s STRING DEFAULT 'd'"),
    "appendOnly": Recipe(properties=("delta.appendOnly=true",)),
    "catalogManaged": Recipe(),
    "changeDataFeed": Recipe(properties=("delta.enableChangeDataFeed=true",)),
    "checkConstraints": Recipe(properties=("delta.constraints.positive=k >= 0",)),
    "checkpointProtection": Recipe(),
    "clustering": Recipe(clause="CLUSTER BY (k)"),
    "columnMapping": Recipe(properties=("delta.columnMapping.mode=name",)),
    "coordinatedCommits-preview": Recipe(),
    "deletionVectors": Recipe(properties=("delta.enableDeletionVectors=true",)),
    "domainMetadata": Recipe(),
    "generatedColumns": Recipe(columns=f"{PLAIN}, g BIGINT GENERATED ALWAYS AS (k + 1)"),
    "geospatial": Recipe(),
    "geospatial-dev": Recipe(),
    "icebergCompatV1": Recipe(
        properties=("delta.enableIcebergCompatV1=true", "delta.columnMapping.mode=name")
    ),
    "icebergCompatV2": Recipe(
        properties=("delta.enableIcebergCompatV2=true", "delta.columnMapping.mode=name")
    ),
    "icebergCompatV3": Recipe(
        properties=(
            "delta.enableIcebergCompatV3=true",
            "delta.columnMapping.mode=name",
            "delta.enableRowTracking=true",
        )
    ),
    "identityColumns": Recipe(columns=f"{PLAIN}, g BIGINT GENERATED ALWAYS AS IDENTITY"),
    "inCommitTimestamp": Recipe(properties=("delta.enableInCommitTimestamps=true",)),
    "invariants": Recipe(columns="id BIGINT NOT NULL, k BIGINT, s STRING"),
    "materializePartitionColumns": Recipe(
        properties=("delta.enableMaterializePartitionColumnsFeature=true",),
        clause="PARTITIONED BY (k)",
    ),
    "rowTracking": Recipe(properties=("delta.enableRowTracking=true",)),
    "timestampNtz": Recipe(
        columns="id BIGINT, k BIGINT, s TIMESTAMP_NTZ",
        values=("TIMESTAMP_NTZ'2026-01-01 00:00:00'", "TIMESTAMP_NTZ'1969-12-31 23:59:59.5'"),
    ),
    "typeWidening": Recipe(properties=("delta.enableTypeWidening=true",)),
    "typeWidening-preview": Recipe(properties=("delta.enableTypeWidening=true",)),
    "v2Checkpoint": Recipe(properties=("delta.checkpointPolicy=v2", "delta.checkpointInterval=2")),
    "vacuumProtocolCheck": Recipe(),
    "variantShredding": Recipe(
        columns="id BIGINT, k BIGINT, s VARIANT",
        properties=("delta.enableVariantShredding=true",),
        values=("parse_json('{\"a\": 1}')", "parse_json('[2]')"),
    ),
    "variantShredding-preview": Recipe(
        columns="id BIGINT, k BIGINT, s VARIANT",
        values=("parse_json('{\"a\": 1}')", "parse_json('[2]')"),
    ),
    "variantType": Recipe(
        columns="id BIGINT, k BIGINT, s VARIANT",
        values=("parse_json('{\"a\": 1}')", "parse_json('[2]')"),
    ),
    "variantType-preview": Recipe(
        columns="id BIGINT, k BIGINT, s VARIANT",
        values=("parse_json('{\"a\": 1}')", "parse_json('[2]')"),
    ),
}


def refused(request: Callable[[], object]) -> Refused | None:
    """How the engine refused the request; None when it carried it out."""
    try:
        request()
    except Refused as refusal:
        return refusal
    return None


def test_every_feature_of_the_jar_has_its_recipe(workers: dict[str, Worker]) -> None:
    assert workers["delta-spark"].sql("features") == sorted(RECIPES)


@pytest.mark.parametrize("feature", RECIPES)
def test_read_right_or_refused_by_name(
    feature: str, workers: dict[str, Worker], tmp_path: Path
) -> None:
    delta, txlake = workers["delta-spark"], workers["txlake"]
    recipe, folder = RECIPES[feature], tmp_path / "t"
    table = f"delta.`{folder}`"
    properties = (f"delta.feature.{feature}=supported", *recipe.properties)
    listed = ", ".join("'{}' = '{}'".format(*entry.split("=", 1)) for entry in properties)
    one, two = recipe.values
    try:
        delta.sql(
            f"CREATE TABLE {table} ({recipe.columns}) USING delta {recipe.clause} "
            f"TBLPROPERTIES ({listed})"
        )
        for first in (0, 10):
            delta.sql(
                f"INSERT INTO {table} (id, k, s) SELECT id, id % 2, "
                f"CASE WHEN id % 3 = 0 THEN {one} ELSE {two} END "
                f"FROM range({first}, {first + 6})"
            )
        if feature != "appendOnly":
            delta.sql(f"UPDATE {table} SET k = k + 2 WHERE id = 3")
            delta.sql(f"DELETE FROM {table} WHERE id = 4")
    except Refused as refusal:
        pytest.skip(f"Delta Spark itself writes no such table: {refusal}"[:300])

    versions = list(range(latest(folder) + 1))
    if (no := refused(lambda: txlake.read(folder, versions))) is not None:
        assert (no.name, feature in str(no)) == ("UnsupportedFeature", True), no
        return
    assert txlake.read(folder, versions) == delta.read(folder, versions)

    writes = (
        f"INSERT INTO {table} (id, k, s) VALUES (20, 0, {one})",
        f"UPDATE {table} SET k = k + 4 WHERE id = 11",
        f"DELETE FROM {table} WHERE id = 12",
        f"OPTIMIZE {table}",
    )
    for statement in writes[:1] if feature == "appendOnly" else writes:
        before = latest(folder)
        if (no := refused(partial(txlake.sql, statement))) is not None:
            assert no.name == "UnsupportedFeature", no
            assert feature.split("-")[0] in str(no)
            assert latest(folder) == before
    delta.sql(f"INSERT INTO {table} (id, k, s) VALUES (30, 1, {two})")
    versions = list(range(latest(folder) + 1))
    assert txlake.read(folder, versions) == delta.read(folder, versions)
