"""Which columns a table may be clustered by. Source: PROTOCOL.md, "Clustered Table"."""

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
# Types without statistics to cluster by.
_NOT_ORDERED = ("binary", "boolean", "void", "variant")


def clustering_paths(schema: Struct, columns: Sequence[str]) -> tuple[Path, ...]:
    """The columns of CLUSTER BY as paths with the schema's own spelling.

    Raises InvalidRequest: more than four, one that isn't there or is named twice, or a type
    without order.
    """
    if len(columns) > COLUMNS_MAX:
        raise InvalidRequest(
            f"CLUSTER BY takes at most {COLUMNS_MAX} columns, found {len(columns)}: "
            f"{', '.join(columns)}"
        )
    paths: list[Path] = []
    for text in columns:
        path = _resolved(schema, text)
        if path in paths:
            raise InvalidRequest(f"CLUSTER BY: column {column_text(path)} is named twice")
        paths.append(path)
    return tuple(paths)


def _resolved(schema: Struct, text: str) -> Path:
    # A name with a dot in it may be given as it is.
    exact = schema.find(text)
    try:
        (path,) = [(text,)] if exact is not None else column_list(text)
    except ValueError as error:
        raise InvalidRequest(f"CLUSTER BY: {text!r} is no column's name") from error
    names: list[str] = []
    here: object = schema
    for part in path:
        found = here.find(part) if isinstance(here, Struct) else None
        if found is None:
            known = ", ".join(column_text((item.name,)) for item in schema)
            raise InvalidRequest(
                f"CLUSTER BY: there is no column {column_text(path)}; there are: {known}"
            )
        names.append(found.name)
        here = found.type
    if not isinstance(here, Primitive) or here.name in _NOT_ORDERED:
        raise InvalidRequest(
            f"CLUSTER BY: column {column_text(names)} has type "
            f"{short_text(found.type) if found is not None else ''}, which has no order to "
            "cluster by"
        )
    return tuple(names)


def clustering_domain(schema: Struct, paths: Sequence[Path]) -> DomainMetadata:
    """The domain that says how the table is clustered, by physical names."""
    columns = [_physical(schema, path) for path in paths]
    configuration = {"clusteringColumns": columns, "domainName": DOMAIN}
    return DomainMetadata(
        domain=DOMAIN,
        configuration=json.dumps(configuration, separators=(",", ":"), ensure_ascii=False),
        removed=False,
    )


def _physical(schema: Struct, path: Path) -> list[str]:
    names = []
    here = schema
    for part in path:
        found = here.find(part)
        assert found is not None
        names.append(found.physical_name)
        here = found.type if isinstance(found.type, Struct) else Struct(())
    return names


def check_indexed(schema: Struct, properties: TableProperties, paths: Sequence[Path]) -> None:
    """Checks that every writer makes statistics of columns that are to be clustered by.

    Raises InvalidRequest naming the column.
    """
    indexed = indexed_columns(list(schema), properties)
    for path in paths:
        if path not in indexed:
            raise InvalidRequest(
                f"CLUSTER BY: column {column_text(path)} has no statistics; set the table property "
                "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols so that it has"
            )


def check_statistics(table: Snapshot, paths: Sequence[Path]) -> None:
    """Checks that all data files have statistics of columns that are to be clustered by.

    Raises InvalidRequest naming the column, and how many files have none.
    """
    check_indexed(table.schema, table.properties, paths)
    for path in paths:
        physical = _physical(table.schema, path)
        texts = table.files.table.column("stats").to_pylist()
        missing = sum(not _counts_nulls(text, physical) for text in texts)
        if missing:
            raise InvalidRequest(
                f"CLUSTER BY: {missing} of {len(texts)} data files have no statistics of column "
                f"{column_text(path)}; rewrite the table first, with INSERT OVERWRITE of itself"
            )


def _counts_nulls(text: str | None, path: Sequence[str]) -> bool:
    here: object = {} if text is None else json.loads(text).get("nullCount")
    for part in path:
        if not isinstance(here, dict) or part not in here:
            return False
        here = here[part]
    return here is not None
