"""Clustering columns: checks and their domain metadata. Source: PROTOCOL.md, "Clustered Table"."""

from __future__ import annotations

import json
from collections.abc import Sequence

from txlake.datafiles.footers import indexed_columns
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import DomainMetadata
from txlake.protocol.clustering import DOMAIN
from txlake.protocol.properties import column_list
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.type_text import short_text
from txlake.protocol.types import Primitive, Struct

COLUMNS_MAX = 4
# Types without minimum and maximum statistics.
_NOT_ORDERED = ("binary", "boolean", "void", "variant")


def clustering_paths(schema: Struct, columns: Sequence[str]) -> tuple[Path, ...]:
    """Return the columns of CLUSTER BY as paths in the schema's spelling; letter case doesn't
    count.

    Raises InvalidRequest: more than four columns, an unknown or repeated column, or a type without
    order.
    """
    if len(columns) > COLUMNS_MAX:
        raise InvalidRequest(
            f"CLUSTER BY takes at most {COLUMNS_MAX} columns, found {len(columns)}: "
            f"{', '.join(columns)}"
        )
    paths: list[Path] = []
    for text in columns:
        path = _resolve(schema, text)
        if path in paths:
            raise InvalidRequest(f"CLUSTER BY: column {column_text(path)} is named twice")
        paths.append(path)
    return tuple(paths)


def _resolve(schema: Struct, text: str) -> Path:
    """Return one column of CLUSTER BY as a path in the schema's spelling.

    Raises InvalidRequest for text that is no column's name, an unknown column, and a type without
    order.
    """
    # A column name that contains a dot may be written without quotes.
    exact = schema.find(text)
    try:
        (path,) = [(text,)] if exact is not None else column_list(text)
    except ValueError as error:
        raise InvalidRequest(f"CLUSTER BY: {text!r} is no column's name") from error
    names: list[str] = []
    current: object = schema
    for part in path:
        column = current.find(part) if isinstance(current, Struct) else None
        if column is None:
            known = ", ".join(column_text((item.name,)) for item in schema)
            raise InvalidRequest(
                f"CLUSTER BY: there is no column {column_text(path)}; there are: {known}"
            )
        names.append(column.name)
        current = column.type
    if not isinstance(current, Primitive) or current.name in _NOT_ORDERED:
        raise InvalidRequest(
            f"CLUSTER BY: column {column_text(names)} has type "
            f"{short_text(column.type) if column is not None else ''}, which has no order to "
            "cluster by"
        )
    return tuple(names)


def clustering_domain(schema: Struct, paths: Sequence[Path]) -> DomainMetadata:
    """Return the domain metadata of the clustering columns, by physical names."""
    columns = [_physical_path(schema, path) for path in paths]
    configuration = {"clusteringColumns": columns, "domainName": DOMAIN}
    return DomainMetadata(
        domain=DOMAIN,
        configuration=json.dumps(configuration, separators=(",", ":"), ensure_ascii=False),
        removed=False,
    )


def _physical_path(schema: Struct, path: Path) -> list[str]:
    """Return the physical names at a logical path, which exists."""
    names = []
    current = schema
    for part in path:
        column = current.find(part)
        assert column is not None
        names.append(column.physical_name)
        current = column.type if isinstance(column.type, Struct) else Struct(())
    return names


def check_indexed(schema: Struct, properties: TableProperties, paths: Sequence[Path]) -> None:
    """Raise InvalidRequest, naming the column, unless writers collect statistics of all these
    columns.

    `paths` are in the schema's spelling.
    """
    indexed = indexed_columns(list(schema), properties)
    for path in paths:
        if path not in indexed:
            raise InvalidRequest(
                f"CLUSTER BY: column {column_text(path)} has no statistics; set the table property "
                "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols so that it has"
            )


def check_statistics(table: Snapshot, paths: Sequence[Path]) -> None:
    """Check that writers collect statistics of the clustering columns, and that all files have
    them.

    Raises InvalidRequest naming the column, and the number of files without.
    """
    check_indexed(table.schema, table.properties, paths)
    for path in paths:
        physical = _physical_path(table.schema, path)
        texts = table.files.table.column("stats").to_pylist()
        missing = sum(not _counts_nulls(text, physical) for text in texts)
        if missing:
            raise InvalidRequest(
                f"CLUSTER BY: {missing} of {len(texts)} data files have no statistics of column "
                f"{column_text(path)}; rewrite the table first, with INSERT OVERWRITE of itself"
            )


def _counts_nulls(text: str | None, path: Sequence[str]) -> bool:
    """Return whether a file's statistics, as JSON, count the nulls of a column at a
    physical path.
    """
    try:
        current: object = json.loads(text or "{}")
    except ValueError:
        return False
    for part in ("nullCount", *path):
        if not isinstance(current, dict) or part not in current:
            return False
        current = current[part]
    return current is not None
