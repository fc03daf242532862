"""A lake's default session, made of its warehouse, catalog, settings and Spark's data plane.

Owns which catalog a warehouse has when none is named.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from txlake import ports
from txlake.catalog import Catalog, is_store_url, looking_once, sqlite_url
from txlake.catalog.unity import UnityCatalog, UnityClient
from txlake.commit.parallel import begin
from txlake.conflict.granularity import parse_granularity
from txlake.conflict.levels import parse_level
from txlake.errors import InvalidRequest
from txlake.ports import Store
from txlake.session.branches import drop_expired
from txlake.session.engine import Engine, require_outside_lake_folder
from txlake.session.lineage import require_client
from txlake.session.membership.opening import open_lake, read_marker
from txlake.session.session import Handlers, Session
from txlake.settings import PUBLISH, Settings
from txlake.spark.plane import SparkPlane
from txlake.storage import local_path, open_store
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG_FILE = "_txlake/catalog.db"
_CATALOG_FOLDER = "_txlake/catalog"
_IN_WAREHOUSE = "warehouse"
_STORE_LEASE_MS_MIN = 90_000
_MEMORY = "memory:"


def session_on(
    location: str,
    *,
    handlers: Handlers,
    make_spark: Callable[[], SparkSession],
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> Session:
    """Return the default session of the lake at a location; create the lake on first use.

    `make_spark` is called when Spark is first needed. Raises InvalidRequest for an unusable
    location, level or option, and for an object store without a `catalog`; and as `open_lake`.
    """
    options = dict(storage_options or {})
    system = System()
    level = None if isolation is None else parse_level(isolation)
    settings = settings or Settings()
    _require_valid(settings)
    warehouse = open_store(location, options)
    require_outside_lake_folder(warehouse.url)
    marker = begin(partial(read_marker, warehouse), store=warehouse)
    with looking_once(system.monotonic_ms()):
        engine = Engine(
            system=system,
            settings=settings,
            plane=_plane(make_spark, system, settings, options),
            warehouse=warehouse,
            catalog=_catalog(catalog, warehouse, system, settings, options),
            storage_options=options,
        )
        session = Session(engine, handlers, level=level, follows_setting=True)
        open_lake(session, marker)
        if engine.recovery_required is None:
            drop_expired(engine)
    return session


def unity_session_on(
    address: str,
    *,
    handlers: Handlers,
    make_spark: Callable[[], SparkSession],
    token: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> Session:
    """Return the default session of a catalog of a Unity Catalog server.

    Raises InvalidRequest for an unusable address or option, and if the server has no such catalog
    or refuses the token; Unavailable if it can't be reached.
    """
    options = dict(storage_options or {})
    system = System()
    level = None if isolation is None else parse_level(isolation)
    settings = settings or Settings()
    _require_valid(settings)
    client = UnityClient.from_address(address, system, token)
    catalog = UnityCatalog(client, system, options)
    plane = _plane(make_spark, system, settings, options)
    plane.options_at = catalog.credentials.options
    engine = Engine(
        system=system,
        settings=settings,
        plane=plane,
        catalog=catalog,
        storage_options=options,
        open_store=lambda location, options: catalog.credentials.store(location),
    )
    return Session(engine, handlers, level=level)


def path_table_session(
    storage_options: Mapping[str, str],
    make_spark: Callable[[], SparkSession],
    *,
    handlers: Handlers,
) -> Session:
    """Return a session for path tables, without a lake; Spark starts when first needed."""
    system, settings, options = System(), Settings(), dict(storage_options)
    engine = Engine(
        system=system,
        settings=settings,
        plane=_plane(make_spark, system, settings, options),
        storage_options=options,
    )
    return Session(engine, handlers)


def _require_valid(settings: Settings) -> None:
    """Raise InvalidRequest for a setting that has none of its values."""
    parse_granularity(settings.conflict_granularity)
    if settings.openlineage is not None:
        require_client()
    if settings.publish not in PUBLISH:
        raise InvalidRequest(
            f"Settings.publish: expected {' or '.join(map(repr, PUBLISH))}, "
            f"found {settings.publish!r}"
        )


def _plane(
    make_spark: Callable[[], SparkSession],
    system: System,
    settings: Settings,
    options: Mapping[str, str],
) -> SparkPlane:
    """Return Spark's data plane with stores that have these options."""
    return SparkPlane(
        make_spark=make_spark,
        system=system,
        settings=settings,
        open_store=open_store,
        storage_options=options,
    )


def catalog_at(session: Session, url: str) -> Catalog:
    """Return the catalog at a URL, or that in the warehouse's own store, for a session's lake.

    Raises as `connect` for its `catalog=`.
    """
    engine = session.engine
    assert engine.warehouse is not None
    return _catalog(url, engine.warehouse, engine.system, engine.settings, engine.storage_options)


def set_aside_default_catalog(session: Session) -> None:
    """Rename a local warehouse's SQLite catalog, which isn't the lake's any more.

    Without it `connect` finds the catalog in the warehouse's store.
    """
    assert session.engine.warehouse is not None
    folder = local_path(session.engine.warehouse.url)
    if folder is not None and _has_log(folder):
        for suffix in ("", "-wal", "-shm"):
            path = Path(folder) / f"{_CATALOG_FILE}{suffix}"
            if path.exists():
                path.rename(path.with_name(f"moved-{path.name}"))


def _catalog(
    url: str | None,
    warehouse: Store,
    system: ports.System,
    settings: Settings,
    options: Mapping[str, str],
) -> Catalog:
    """Return the catalog at a URL; without one, the warehouse's own, which is made on first use.

    That is a SQLite file for a folder, and for other stores, or with the URL `warehouse`, a log in
    the store itself. Raises InvalidRequest for a folder that can't be written, and as `Catalog`.
    """
    folder = local_path(warehouse.url)
    is_in_memory = warehouse.url.startswith(_MEMORY)
    if url is None and not is_in_memory and (folder is None or _has_catalog_in_store(folder)):
        url = _IN_WAREHOUSE
    if url == _IN_WAREHOUSE:
        url = warehouse.at(_CATALOG_FOLDER).url
    if url is not None:
        # Renewing a lease in a store costs a request.
        lease_ms_min = _STORE_LEASE_MS_MIN if is_store_url(url) else 0
        return Catalog(
            url,
            system,
            lease_ms=max(settings.lease_ms, lease_ms_min),
            commits_kept=settings.commits_kept,
            log_retention_ms=settings.catalog_log_retention_ms,
            storage_options=options,
        )
    if folder is None:
        return _catalog_in_memory(warehouse.url, os.getpid())
    path = Path(folder) / _CATALOG_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"{folder}: a lake can't be made there: {error.strerror}; choose a folder that can be "
            "written"
        ) from error
    return Catalog(
        sqlite_url(str(path)),
        system,
        lease_ms=settings.lease_ms,
        commits_kept=settings.commits_kept,
    )


def _has_catalog_in_store(folder: str) -> bool:
    """Return whether a local warehouse was made with its catalog as objects, not in SQLite."""
    return _has_log(folder) and not (Path(folder) / _CATALOG_FILE).exists()


def _has_log(folder: str) -> bool:
    """Return whether a local warehouse has the log of a catalog."""
    return (Path(folder) / _CATALOG_FOLDER / "log").is_dir()


@functools.cache
def _catalog_in_memory(warehouse_url: str, process: int) -> Catalog:
    """Return the catalog of a lake in memory; there is one for each URL in the process."""
    return Catalog("sqlite://", System())
