"""The log's records of a table's clustering columns and of its files' cubes.

Source: PROTOCOL.md, "Clustered Table". The files' tags are Delta Spark's: files that one OPTIMIZE
wrote together are a cube.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from txlake.errors import CorruptTable
from txlake.protocol.actions import Add, DomainMetadata
from txlake.protocol.schema_rules import Path
from txlake.protocol.types import Struct

DOMAIN = "delta.clustering"
FEATURE = "clustering"
PROVIDER = "liquid"
_CUBE_ID = "ZCUBE_ID"
_CUBE_COLUMNS = "ZCUBE_ZORDER_BY"
_CUBE_CURVE = "ZCUBE_ZORDER_CURVE"


def clustered_by(
    schema: Struct, domains: Mapping[str, DomainMetadata], *, table: str
) -> tuple[Path, ...]:
    """Return the logical paths of a table's clustering columns; () when it isn't clustered.

    Raises CorruptTable when the domain can't be read.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return ()
    try:
        columns = json.loads(domain.configuration)["clusteringColumns"]
        physical = [[name] if isinstance(name, str) else list(map(str, name)) for name in columns]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f"{table}: domain {DOMAIN}: expected clusteringColumns, found "
            f"{domain.configuration!r:.80}"
        ) from error
    return tuple(_logical(schema, path) for path in physical)


def _logical(schema: Struct, path: Sequence[str]) -> Path:
    """Return the logical path of a physical one; parts that the schema doesn't have stay as they
    are.
    """
    names = []
    here = schema
    for part in path:
        found = next((item for item in here if item.physical_name == part), None)
        names.append(part if found is None else found.name)
        inner = None if found is None else found.type
        here = inner if isinstance(inner, Struct) else Struct(())
    return tuple(names)


@dataclass(frozen=True, slots=True)
class Cube:
    """A file's cube: its id, and the columns in order, as SQL writes them."""

    id: str
    columns: tuple[str, ...]


def cube_of(add: Add) -> Cube | None:
    """Return the cube in a file's tags; None without one, or for tags that can't be read."""
    tags = add.tags or {}
    cube_id, columns = tags.get(_CUBE_ID), tags.get(_CUBE_COLUMNS)
    if cube_id is None or columns is None:
        return None
    try:
        names = json.loads(columns)
    except ValueError:
        return None
    return Cube(cube_id, tuple(map(str, names))) if isinstance(names, list) else None


def in_cube(add: Add, cube: Cube) -> Add:
    """Return the file tagged as part of a cube, sorted along the Hilbert curve or by one column."""
    columns = json.dumps(cube.columns, separators=(",", ":"), ensure_ascii=False)
    tags = {_CUBE_ID: cube.id, _CUBE_COLUMNS: columns, _CUBE_CURVE: "hilbert"}
    return msgspec.structs.replace(
        add, tags={**(add.tags or {}), **tags}, clustering_provider=PROVIDER
    )


def as_clustered(add: Add, before: Add) -> Add:
    """Return the file with the cube tags and clustering provider of `before`, some or all of whose
    rows it holds.
    """
    names = (_CUBE_ID, _CUBE_COLUMNS, _CUBE_CURVE)
    tags = {name: text for name, text in (before.tags or {}).items() if name in names}
    if not tags and before.clustering_provider is None:
        return add
    return msgspec.structs.replace(
        add, tags={**(add.tags or {}), **tags}, clustering_provider=before.clustering_provider
    )
