"""Airflow's connection type `txlake`: SQL and SQL check operators on a lake.

An Airflow connection names a lake in the worker's process by `warehouse` in its extra, or a server
by host, port and a token as password. Source: Airflow's provider `common.sql`, DbApiHook.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.sql.hooks.sql import DbApiHook
from sqlalchemy.engine import URL

import txlake.dbapi
from txlake.errors import InvalidRequest

_OPTIONS = ("catalog", "isolation", "storage_options", "timeout_s")


class TxlakeHook(DbApiHook):  # type: ignore[misc, unused-ignore]
    """Connections to a lake, for operators with `conn_id=` of a connection of the type `txlake`.

    `schema` is the database. The extra may have `warehouse`, `scheme` ("https", or "http"), and
    options of `txlake.dbapi.connect`: catalog, isolation, storage_options, timeout_s.
    """

    conn_name_attr = "txlake_conn_id"
    default_conn_name = "txlake_default"
    conn_type = "txlake"
    hook_name = "txlake"
    supports_autocommit = True
    supports_executemany = True
    strip_semicolon = True
    _placeholder = "?"

    def get_conn(self) -> txlake.dbapi.Connection:
        """Open a connection. Raises as `txlake.dbapi.connect`, and InvalidRequest for an Airflow
        connection that names no lake.
        """
        given = self.connection
        extra = given.extra_dejson
        options: dict[str, Any] = {name: extra[name] for name in _OPTIONS if name in extra}
        if given.schema:
            options["database"] = given.schema
        warehouse = extra.get("warehouse")
        if bool(warehouse) == bool(given.host):
            raise InvalidRequest(
                f"Airflow connection {self.get_conn_id()!r}: expected a host, or a warehouse in "
                f"its extra, found {'both' if warehouse else 'neither'}"
            )
        if warehouse:
            return txlake.dbapi.connect(str(warehouse), **options)
        port = f":{given.port}" if given.port else ""
        return txlake.dbapi.connect(
            f"txlake+{extra.get('scheme', 'https')}://{given.host}{port}",
            token=given.password,
            **options,
        )

    @property
    def sqlalchemy_url(self) -> URL:
        given = self.connection
        extra = given.extra_dejson
        if not given.host:
            query = {"database": given.schema} if given.schema else {}
            return URL.create("txlake", database=extra.get("warehouse"), query=query)
        return URL.create(
            f"txlake+{extra.get('scheme', 'https')}",
            password=given.password,
            host=given.host,
            port=given.port,
            database=given.schema,
        )

    def get_uri(self) -> str:
        return self.sqlalchemy_url.render_as_string(hide_password=False)
