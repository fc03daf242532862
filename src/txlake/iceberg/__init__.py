"""A Delta table's versions as Iceberg metadata (UniForm): schemas, manifests, snapshots, and files.

The data files are shared; only metadata is written, below `metadata/` in the table's folder, with
pyiceberg's own writers, which the extra `iceberg` brings. `commit.iceberg_publication` says when.

| module | owns |
| --- | --- |
| `schema` | columns, field ids, the name mapping |
| `partitioning` | partition specs and partition values |
| `data_files` | data files with their statistics |
| `manifests` | manifests of added files, and of what stays when files are removed |
| `snapshots` | a version's snapshot: its id, operation and summary |
| `table_metadata` | the table's metadata, and which snapshots it keeps |
| `conversion` | one version after another |
| `metadata_files` | names of metadata files, put-if-absent, and what no longer is needed |
| `store_io` | pyiceberg's FileIO over a store |
"""

from __future__ import annotations
