"""Tables as values, for tests of handlers that touch no file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from txlake.commit.change import Change
from txlake.ddl.create import create
from txlake.ddl.environment import Environment
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DomainMetadata, Metadata, Protocol
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import DataType, Struct
from txlake.sql.statements import ColumnSpec, CreateTable, SqlText, TableName

T = TableName(("t",))
_IDS = itertools.count(1)


def environment(
    *,
    violating_row: Callable[[str], Mapping[str, object] | None] = lambda condition: None,
    type_of: Callable[[str, Struct], DataType] | None = None,
) -> Environment:
    return Environment(
        now_ms=1_700_000_000_000,
        new_id=lambda: f"00000000-0000-0000-0000-{next(_IDS):012d}",
        violating_row=violating_row,
        type_of=type_of,
    )


def specs(text: str) -> tuple[ColumnSpec, ...]:
    """`a int NOT NULL, b string` as the parser gives it."""
    found = []
    for column in _split(text):
        parts = re.fullmatch(r"\s*(?:`(.+?)`|(\S+)) (.*?)( NOT NULL)?", column)
        assert parts is not None
        name = parts[1] or parts[2]
        found.append(ColumnSpec(name=name, data_type=parts[3], nullable=parts[4] is None))
    return tuple(found)


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def metadata_of(change: Change) -> Metadata:
    (found,) = [action for action in change.actions if isinstance(action, Metadata)]
    return found


def protocol_of(change: Change) -> Protocol:
    (found,) = [action for action in change.actions if isinstance(action, Protocol)]
    return found


def domain_of(change: Change) -> DomainMetadata:
    (found,) = [action for action in change.actions if isinstance(action, DomainMetadata)]
    return found


def after(snapshot: Snapshot, change: Change) -> Snapshot:
    return snapshot.apply(change.actions, version=snapshot.version + 1, timestamp_ms=2)


def table(
    columns: str,
    *,
    partition_by: tuple[str, ...] = (),
    cluster_by: tuple[str, ...] | None = None,
    properties: Mapping[str, str] | None = None,
    files: int = 0,
    comment: str | None = None,
) -> Snapshot:
    """A table that CREATE TABLE made, with data files `f0`, `f1` ... of nothing."""
    statement = CreateTable(
        table=T,
        columns=specs(columns),
        partition_by=partition_by or None,
        cluster_by=cluster_by,
        properties=tuple((properties or {}).items()),
        comment=comment,
    )
    change = create(statement, None, environment())
    assert change is not None
    found = Snapshot.empty("t").apply(change.actions, version=0, timestamp_ms=1)
    adds = [
        Add(
            path=f"f{i}",
            partition_values={name: str(i) for name in partition_by},
            size=10,
            modification_time=1,
            data_change=True,
        )
        for i in range(files)
    ]
    return found.apply(adds, version=1, timestamp_ms=1) if adds else found


def schema(text: str) -> Struct:
    return parse_columns(text)


def sql(text: str) -> SqlText:
    return SqlText(text)
