"""Descriptions of table features: what each means for readers and writers of the table."""

from __future__ import annotations

from collections.abc import Iterable

_DESCRIPTIONS = {
    "allowColumnDefaults": "columns may have default values",
    "appendOnly": "rows can be forbidden to change (delta.appendOnly)",
    "catalogManaged": "a catalog makes the versions; engines that know it write through it",
    "catalogOwned": "a catalog makes the versions; an early form of catalogManaged",
    "catalogOwned-preview": "a catalog makes the versions; an early form of catalogManaged",
    "changeDataFeed": "changes of rows can be recorded (delta.enableChangeDataFeed)",
    "checkConstraints": "rows have to satisfy CHECK constraints",
    "checkpointProtection": "old checkpoints stay, so that older readers can read old versions",
    "clustering": "files are clustered by columns (CLUSTER BY)",
    "collations": "texts are compared by a collation",
    "columnMapping": "columns have other names in files, so that renaming them costs nothing",
    "deletionVectors": "deleted rows are noted beside files, which stay as they are",
    "domainMetadata": "features keep settings of their own in the log",
    "generatedColumns": "columns can be computed of others",
    "geospatial": "columns can be geometries",
    "icebergCompatV1": "the files are such that Iceberg's readers can use them",
    "icebergCompatV2": "the files are such that Iceberg's readers can use them",
    "icebergCompatV3": "the files are such that Iceberg's readers can use them",
    "identityColumns": "columns can number the rows",
    "inCommitTimestamp": "each commit carries its time, whatever becomes of its file",
    "invariants": "columns can be NOT NULL",
    "materializePartitionColumns": "data files hold the partition columns too",
    "multiTableTransaction": "commits name the other tables of their transaction",
    "multiTableTransaction-dev": "commits name the other tables of their transaction",
    "rowTracking": "rows have ids that they keep (delta.enableRowTracking)",
    "tableBranching-dev": "the table can have branches, whose versions are beside its own",
    "timestampNtz": "timestamps without a time zone",
    "txlakeCatalog": "this lake's catalog makes the versions: txlake writes, every engine reads",
    "typeWidening": "column types were widened without rewriting files",
    "typeWidening-preview": "column types were widened without rewriting files",
    "v2Checkpoint": "checkpoints are in several files",
    "vacuumProtocolCheck": "VACUUM is left to engines that know all of the table's features",
    "variantShredding": "variants are stored in columns of their own where they are alike",
    "variantShredding-preview": "variants are stored in columns of their own where they are alike",
    "variantType": "columns can be variants",
    "variantType-preview": "columns can be variants",
}


def describe_features(features: Iterable[str]) -> list[tuple[str, str]]:
    """Return each feature with its description, sorted by name; unknown features are described as
    such.
    """
    return [
        (name, _DESCRIPTIONS.get(name, "not one that txlake knows")) for name in sorted(features)
    ]
