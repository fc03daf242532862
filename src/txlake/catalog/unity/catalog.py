"""A Unity Catalog's schemas and tables by name, as an `AnyCatalog`.

A table is looked up each time that a statement names it. Locks, views, instants and lists of
transactions exist only in a lake. Source: Unity Catalog's API, "Catalogs", "Schemas", "Tables".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from txlake.catalog import DatabaseEntry, NoCatalog, TableEntry
from txlake.catalog.name_parts import qualified
from txlake.catalog.ports import NewPlace
from txlake.catalog.unity.bodies import KnownTable
from txlake.catalog.unity.client import (
    RequestRefused,
    Response,
    ResponseLost,
    UnityClient,
    delta_path,
    quoted,
)
from txlake.catalog.unity.ledger import UnityLedger
from txlake.catalog.unity.responses import StagingTable, decode
from txlake.catalog.unity.vended_credentials import VendedCredentials
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable, UnsupportedFeature
from txlake.ports import System
from txlake.sql.statements import TableName

_NOT_FOUND = 404
_FORMAT = "DELTA"


@dataclass(frozen=True, slots=True)
class _Schemas:
    """`catalog.ports.Schemas` of one catalog."""

    client: UnityClient
    catalog: str

    def create(
        self, name: str, *, comment: str | None = None, properties: Mapping[str, str]
    ) -> None:
        """Create a schema. Raises InvalidRequest if the server refuses, OutcomeUnknown if its
        response is lost.
        """
        body: dict[str, object] = {"name": name, "catalog_name": self.catalog}
        if comment is not None:
            body["comment"] = comment
        self._do("POST", "/schemas", name, body | {"properties": dict(properties)})

    def drop(self, name: str, *, cascade: bool) -> None:
        """Drop a schema, with `cascade` also one with tables. Raises as `create`."""
        path = f"/schemas/{quoted(f'{self.catalog}.{name}')}"
        self._do("DELETE", f"{path}?force={str(cascade).lower()}", name)

    def _do(self, method: str, path: str, name: str, body: object = None) -> None:
        """Send a change of the schema `name`. Raises InvalidRequest if the server refuses,
        OutcomeUnknown if its response is lost, Unavailable if it can't be reached.
        """
        try:
            self.client.send(method, path, body)
        except RequestRefused as error:
            raise InvalidRequest(f"database {name!r}: nothing was changed: {error}") from error
        except ResponseLost as error:
            raise OutcomeUnknown(
                f"database {name!r}: whether that was done isn't known; SHOW DATABASES tells: "
                f"{error}"
            ) from error


class UnityCatalog(NoCatalog):
    """An `AnyCatalog` for one catalog of a server. Thread-safe."""

    has_names = True

    def __init__(
        self, client: UnityClient, system: System, storage_options: Mapping[str, str]
    ) -> None:
        """Open the catalog that the client's address names, or the server's only one.

        Raises InvalidRequest if the server lacks the catalog, or has several to choose from.
        """
        super().__init__()
        self._client = client
        self._system = system
        self.name = _choose_catalog(client)
        self._ledger = UnityLedger(client, self.name, system)
        self.credentials = VendedCredentials(self._ledger, storage_options)
        self._ledger.open_store = self.credentials.store
        self._new_places: dict[str, NewPlace] = {}
        self._schemas = _Schemas(client, self.name)

    @property
    def schemas(self) -> _Schemas:
        """The schemas, for creating and dropping them."""
        return self._schemas

    @property
    def ledger(self) -> UnityLedger:
        """The ledger of the tables' versions."""
        return self._ledger

    @property
    def description(self) -> str:
        """The catalog's name and server, for messages."""
        return f"catalog {self.name!r} of {self._client.url}"

    def of_lake(self) -> NoReturn:
        """Raise InvalidRequest: the catalog isn't a lake's."""
        raise InvalidRequest(
            f"{self.description} is a Unity Catalog: locks, views, databases with isolation "
            "levels, identity values and lists of transactions are a lake's own; open one with "
            "txlake.connect(folder)"
        )

    def close(self) -> None:
        self._client.close()

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        return qualified(table, database, {self.name.lower()}, lambda name: False)

    def database(self, name: str) -> DatabaseEntry | None:
        """Return the schema of that name as a database; None if there is none.

        Raises InvalidRequest if the server refuses the request, Unavailable.
        """
        try:
            response = self._client.get(f"/schemas/{quoted(f'{self.name}.{name}')}")
        except RequestRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise InvalidRequest(str(error)) from error
        return _database(response)

    def databases(self) -> Sequence[DatabaseEntry]:
        """Return the schemas as databases, ordered by name. Raises InvalidRequest, Unavailable."""
        return sorted(
            (_database(schema) for schema in self._list_all("/schemas", "schemas")),
            key=lambda entry: entry.name.lower(),
        )

    def tables(self, database: str) -> Sequence[TableEntry]:
        """Return a schema's Delta tables, ordered by name, each without its head.

        Raises InvalidRequest if there is no such schema, Unavailable.
        """
        listed = self._list_all("/tables", "tables", schema_name=database)
        entries = (
            _listed_table(table) for table in listed if table.get("data_source_format") == _FORMAT
        )
        return sorted(entries, key=lambda entry: entry.name.lower())

    def _list_all(self, path: str, key: str, **query: str) -> list[Response]:
        """Return the catalog's items at a path. Raises InvalidRequest if the server refuses,
        Unavailable.
        """
        try:
            return self._client.list_all(path, key, {"catalog_name": self.name, **query})
        except RequestRefused as error:
            raise InvalidRequest(str(error)) from error

    def find(self, database: str, name: str) -> TableEntry | None:
        """Return the table of that name; None if there is none. Raises InvalidRequest, Unavailable.

        Without a head if the catalog doesn't manage the table's commits; else the ledger remembers
        the table.
        """
        loaded = self._ledger.load(database, name)
        if loaded is None:
            return None
        metadata = loaded.metadata
        entry = TableEntry(
            id=metadata.table_uuid,
            number=0,
            database=database,
            database_number=0,
            name=name,
            location=metadata.location,
            managed=metadata.table_type == "MANAGED",
            created_ms=metadata.created_time,
            modified_ms=metadata.updated_time,
            head=loaded.latest_table_version,
        )
        if entry.head is not None:
            self._ledger.remember(
                KnownTable(id=entry.id, schema=database, name=name, location=entry.location)
            )
        return entry

    def new_place(self, database: str, name: str) -> NewPlace:
        """Reserve a place for a new table on the server.

        Raises InvalidRequest if the server refuses the name, UnsupportedFeature if it requires
        properties with values of the client's choice, Unavailable if it can't be reached or its
        response is lost.
        """
        path = delta_path("catalogs", self.name, "schemas", database, "staging-tables")
        try:
            response = self._client.send("POST", path, {"name": name})
        except RequestRefused as error:
            raise InvalidRequest(f"{database}.{name}: {error}") from error
        except ResponseLost as error:  # an unused location is harmless
            raise Unavailable(f"{database}.{name}: it got no place: {error}") from error
        staging = decode(response, StagingTable, f"{database}.{name}")
        now_ms = self._system.now_ms()
        entry = TableEntry(
            id=staging.table_id,
            number=0,
            database=database,
            database_number=0,
            name=name,
            location=staging.location,
            managed=True,
            created_ms=now_ms,
            modified_ms=now_ms,
        )
        self._ledger.remember(
            KnownTable(
                id=entry.id, schema=database, name=name, location=entry.location, is_new=True
            )
        )
        required = staging.required_properties
        properties = {key: text for key, text in required.items() if text is not None}
        if len(properties) < len(required):
            raise UnsupportedFeature(
                f"{self.description} wants {', '.join(sorted(required.keys() - properties))} of a "
                "new table, with values of our choice"
            )
        protocol = staging.required_protocol
        self._new_places[entry.id] = NewPlace(
            entry=entry,
            features=frozenset({*protocol.reader_features, *protocol.writer_features}),
            properties=properties,
        )
        return self._new_places[entry.id]

    def requirements_of(self, table_id: str) -> NewPlace | None:
        return self._new_places.get(table_id)


def _choose_catalog(client: UnityClient) -> str:
    """Return the name of the catalog in the client's address, as the server spells it; without one
    in the address, of the server's only catalog.

    Raises InvalidRequest if the server lacks the catalog, or has several to choose from, and
    Unavailable.
    """
    try:
        names = [str(catalog["name"]) for catalog in client.list_all("/catalogs", "catalogs", {})]
    except RequestRefused as error:
        raise InvalidRequest(str(error)) from error
    if client.catalog is None:
        if len(names) == 1:
            return names[0]
        raise InvalidRequest(
            f"{client.url} has {len(names)} catalogs ({_list(names)}); say which one: "
            "uc+https://...?catalog=name"
        )
    for name in names:
        if name.lower() == client.catalog.lower():
            return name
    raise InvalidRequest(f"{client.url} has no catalog {client.catalog!r}; it has {_list(names)}")


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _database(response: Response) -> DatabaseEntry:
    """Return the entry of a schema in a response."""
    return DatabaseEntry(
        id=str(response.get("schema_id", "")),
        number=0,
        name=str(response["name"]),
        created_ms=int(response.get("created_at") or 0),
        comment=response.get("comment"),
        properties=response.get("properties") or {},
    )


def _listed_table(response: Response) -> TableEntry:
    """Return the entry of a table in a list, which has no head."""
    return TableEntry(
        id=str(response.get("table_id", "")),
        number=0,
        database=str(response["schema_name"]),
        database_number=0,
        name=str(response["name"]),
        location=str(response.get("storage_location", "")),
        managed=response.get("table_type") == "MANAGED",
        created_ms=int(response.get("created_at") or 0),
        modified_ms=int(response.get("updated_at") or 0),
    )
