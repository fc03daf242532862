"""From the command line's options to a lake's connection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from txlake.cli.lakes import ConnectionSettings


def warehouse_connection(
    warehouse: str | None, lake: str | None, catalog: str | None, options: list[str] | None
) -> ConnectionSettings:
    """Return the connection of a warehouse, or of a lake, which are the same.

    Raises BadParameter without either, and if they differ.
    """
    if warehouse and lake and warehouse != lake:
        raise typer.BadParameter("give WAREHOUSE or --lake, not both")
    return lake_connection(warehouse or lake, catalog, None, options)


def certificate(chain: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return both paths; None if neither is given. Raises BadParameter if one is missing."""
    if (chain is None) != (key is None):
        raise typer.BadParameter("give --tls-certificate and --tls-key together")
    return None if chain is None or key is None else (chain, key)


def lake_connection(
    lake: str | None, catalog: str | None, isolation: str | None, options: list[str] | None
) -> ConnectionSettings:
    """Return the connection of a lake. Raises BadParameter without a location."""
    if not lake:
        raise typer.BadParameter(LAKE_MISSING)
    return connection_of(lake, catalog, isolation, options)


def connection_of(
    lake: str | None, catalog: str | None, isolation: str | None, options: list[str] | None
) -> ConnectionSettings:
    """Return the connection of a lake, by the options and the environment; `lake` may be missing.

    Raises BadParameter as `parse_pairs`.
    """
    from txlake.cli.lakes import ConnectionSettings

    allowed = os.environ.get(_ALLOW_OUTSIDE, "")
    return ConnectionSettings(
        location=lake,
        catalog=catalog,
        isolation=isolation,
        storage_options=parse_pairs(options, "--storage-option: expected KEY=VALUE"),
        allow_outside_paths=tuple(filter(None, allowed.split(","))),
        token=os.environ.get(_TOKEN) or None,
        openlineage=os.environ.get(_OPENLINEAGE) or None,
    )


def parse_pairs(texts: Sequence[str] | None, expected: str) -> dict[str, str]:
    """Return NAME=VALUE texts by their names.

    Raises BadParameter for another form, and for a name given twice. No message has a value, which
    may be a secret.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{expected}, found no '=' after a name")
        if name in pairs:
            raise typer.BadParameter(f"{expected}, found {name!r} twice")
        pairs[name] = value
    return pairs


_ALLOW_OUTSIDE = "TXLAKE_ALLOW_OUTSIDE_PATHS"


_TOKEN = "TXLAKE_TOKEN"


_OPENLINEAGE = "TXLAKE_OPENLINEAGE"


LAKE_MISSING = "no lake is named: say --lake or set TXLAKE_LAKE"
