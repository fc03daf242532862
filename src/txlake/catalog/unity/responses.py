"""A Unity Catalog's responses about tables, as checked values. Unknown fields are ignored.

Source: Unity Catalog's Delta API, its response schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from txlake.errors import Unavailable

Value = TypeVar("Value", bound=msgspec.Struct)


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A response whose names are snake_case here, and kebab-case on the wire."""


class TableMetadata(_Response, frozen=True, kw_only=True):
    """The fields of a table's definition that are used here."""

    table_uuid: str
    table_type: str
    location: str
    created_time: int
    updated_time: int
    properties: dict[str, str]


class UnpublishedCommit(_Response, frozen=True, kw_only=True):
    """A commit that may not be published yet."""

    version: int
    file_name: str


class LoadedTable(_Response, frozen=True, kw_only=True):
    """A table. `latest_table_version`: None if the catalog doesn't manage the table's commits."""

    metadata: TableMetadata
    commits: tuple[UnpublishedCommit, ...] | None = None
    latest_table_version: int | None = None


class RequiredProtocol(_Response, frozen=True, kw_only=True):
    """The table features that a new table must have."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class StagingTable(_Response, frozen=True, kw_only=True):
    """The location of a new table, and what the table must have."""

    table_id: str
    location: str
    required_protocol: RequiredProtocol
    required_properties: dict[str, str | None]


class StorageCredential(_Response, frozen=True, kw_only=True):
    """Credentials for a location. `expiration_time_ms`: None if they don't expire."""

    expiration_time_ms: int | None = None
    config: dict[str, str] = {}


class Credentials(_Response, frozen=True, kw_only=True):
    """The vended credentials."""

    storage_credentials: tuple[StorageCredential, ...] = ()


def decode(response: Mapping[str, Any], kind: type[Value], subject: str) -> Value:
    """Return the response as a value. Raises Unavailable, naming `subject`, for an invalid
    response.
    """
    try:
        return msgspec.convert(response, kind)
    except msgspec.ValidationError as error:
        raise Unavailable(
            f"{subject}: the catalog's answer can't be understood: {error}"
        ) from error
