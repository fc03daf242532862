"""What a Unity Catalog answers about tables, as checked values; what isn't known is ignored.

Source: Unity Catalog's Delta API, its schemas of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from txlake.errors import Unavailable

Value = TypeVar("Value", bound=msgspec.Struct)


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Names are snake_case here, and with dashes on the wire."""


class TableTold(_Answer, frozen=True, kw_only=True):
    """A table's definition, as far as it matters here."""

    table_uuid: str
    table_type: str
    location: str
    created_time: int
    updated_time: int
    properties: dict[str, str]


class CommitTold(_Answer, frozen=True, kw_only=True):
    """A commit that may not be published yet."""

    version: int
    file_name: str


class Loaded(_Answer, frozen=True, kw_only=True):
    """A table; `latest_table_version` is None where the catalog doesn't make its commits."""

    metadata: TableTold
    commits: tuple[CommitTold, ...] | None = None
    latest_table_version: int | None = None


class ProtocolAsked(_Answer, frozen=True, kw_only=True):
    """The table features that a new table has to have."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class StagingTable(_Answer, frozen=True, kw_only=True):
    """A place for a new table, and what is asked of it."""

    table_id: str
    location: str
    required_protocol: ProtocolAsked
    required_properties: dict[str, str | None]


class Lent(_Answer, frozen=True, kw_only=True):
    """Credentials for a place; no time: they don't end."""

    expiration_time_ms: int | None = None
    config: dict[str, str] = {}


class Credentials(_Answer, frozen=True, kw_only=True):
    """All that is lent."""

    storage_credentials: tuple[Lent, ...] = ()


def read(found: Mapping[str, Any], kind: type[Value], whose: str) -> Value:
    """The answer as a value. Raises Unavailable, naming the server, for what isn't one."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{whose}: the catalog's answer can't be understood: {error}") from error
