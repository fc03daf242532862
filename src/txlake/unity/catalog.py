"""A Unity Catalog's names: schemas and tables, as a session asks for them.

Owns what its answers are to a session; a table is asked for whenever a statement names it. What a
lake has besides (locks, views, instants, lists of transactions) there isn't. Source: Unity
Catalog's API, "Catalogs", "Schemas", "Tables".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from txlake.catalog import DatabaseEntry, NoCatalog, TableEntry
from txlake.catalog.name_parts import qualified
from txlake.catalog.ports import NewPlace
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable, UnsupportedFeature
from txlake.ports import System
from txlake.statements import TableName
from txlake.unity.answers import StagingTable, read
from txlake.unity.client import Answer, Declined, Unanswered, UnityClient, delta_path, quoted
from txlake.unity.ledger import Known, UnityLedger
from txlake.unity.lending import Lending

_GONE = 404
_FORMAT = "DELTA"


@dataclass(frozen=True, slots=True)
class _Schemas:
    """`catalog.ports.Schemas` of one catalog."""

    client: UnityClient
    catalog: str

    def create(
        self, name: str, *, comment: str | None = None, properties: Mapping[str, str]
    ) -> None:
        told: dict[str, object] = {"name": name, "catalog_name": self.catalog}
        if comment is not None:
            told["comment"] = comment
        self._do("POST", "/schemas", name, told | {"properties": dict(properties)})

    def drop(self, name: str, *, cascade: bool) -> None:
        path = f"/schemas/{quoted(f'{self.catalog}.{name}')}"
        self._do("DELETE", f"{path}?force={str(cascade).lower()}", name)

    def _do(self, method: str, path: str, name: str, body: object = None) -> None:
        try:
            self.client.told(method, path, body)
        except Declined as error:
            raise InvalidRequest(f"database {name!r}: nothing was changed: {error}") from error
        except Unanswered as error:
            raise OutcomeUnknown(
                f"database {name!r}: whether that was done isn't known; SHOW DATABASES tells: "
                f"{error}"
            ) from error


class UnityCatalog(NoCatalog):
    """An AnyCatalog of one catalog of a server. Threads may share it."""

    has_names = True

    def __init__(
        self, client: UnityClient, system: System, storage_options: Mapping[str, str]
    ) -> None:
        """Raises InvalidRequest where the server has no such catalog, or several to choose from."""
        super().__init__()
        self._client = client
        self._system = system
        self.name = _chosen(client)
        self._ledger = UnityLedger(client, self.name, system)
        self.lending = Lending(self._ledger, storage_options)
        self._ledger.open_store = self.lending.store
        self._asked: dict[str, NewPlace] = {}
        self._schemas = _Schemas(client, self.name)

    @property
    def schemas(self) -> _Schemas:
        """Who makes and drops schemas."""
        return self._schemas

    @property
    def ledger(self) -> UnityLedger:
        """Who makes the versions of its tables."""
        return self._ledger

    @property
    def shown(self) -> str:
        """As messages name it."""
        return f"catalog {self.name!r} of {self._client.url}"

    def of_lake(self) -> NoReturn:
        raise InvalidRequest(
            f"{self.shown} is a Unity Catalog: locks, views, databases with isolation levels, "
            "identity values and lists of transactions are a lake's own; open one with "
            "txlake.connect(folder)"
        )

    def close(self) -> None:
        self._client.close()

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        return qualified(table, database, {self.name.lower()}, lambda name: False)

    def database(self, name: str) -> DatabaseEntry | None:
        try:
            found = self._client.asked(f"/schemas/{quoted(f'{self.name}.{name}')}")
        except Declined as error:
            if error.status == _GONE:
                return None
            raise InvalidRequest(str(error)) from error
        return _database(found)

    def databases(self) -> Sequence[DatabaseEntry]:
        return sorted(
            (_database(one) for one in self._listed("/schemas", "schemas")),
            key=lambda entry: entry.name.lower(),
        )

    def tables(self, database: str) -> Sequence[TableEntry]:
        found = self._listed("/tables", "tables", schema_name=database)
        entries = (_listed_table(one) for one in found if one.get("data_source_format") == _FORMAT)
        return sorted(entries, key=lambda entry: entry.name.lower())

    def _listed(self, path: str, key: str, **query: str) -> list[Answer]:
        try:
            return self._client.listed(path, key, {"catalog_name": self.name, **query})
        except Declined as error:
            raise InvalidRequest(str(error)) from error

    def find(self, database: str, name: str) -> TableEntry | None:
        found = self._ledger.load(database, name)
        if found is None:
            return None
        metadata = found.metadata
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
            head=found.latest_table_version,
        )
        if entry.head is not None:
            self._ledger.learn(
                Known(id=entry.id, schema=database, name=name, location=entry.location)
            )
        return entry

    def new_place(self, database: str, name: str) -> NewPlace:
        """As `AnyCatalog.new_place`. Raises InvalidRequest where the name is taken."""
        path = delta_path("catalogs", self.name, "schemas", database, "staging-tables")
        try:
            answer = self._client.told("POST", path, {"name": name})
        except Declined as error:
            raise InvalidRequest(f"{database}.{name}: {error}") from error
        except Unanswered as error:  # a place that nobody uses is nobody's table
            raise Unavailable(f"{database}.{name}: it got no place: {error}") from error
        found = read(answer, StagingTable, f"{database}.{name}")
        now_ms = self._system.now_ms()
        entry = TableEntry(
            id=found.table_id,
            number=0,
            database=database,
            database_number=0,
            name=name,
            location=found.location,
            managed=True,
            created_ms=now_ms,
            modified_ms=now_ms,
        )
        self._ledger.learn(
            Known(id=entry.id, schema=database, name=name, location=entry.location, is_new=True)
        )
        wanted = found.required_properties
        properties = {key: text for key, text in wanted.items() if text is not None}
        if len(properties) < len(wanted):
            raise UnsupportedFeature(
                f"{self.shown} wants {', '.join(sorted(wanted.keys() - properties))} of a new "
                "table, with values of our choice"
            )
        asked = found.required_protocol
        self._asked[entry.id] = NewPlace(
            entry=entry,
            features=frozenset({*asked.reader_features, *asked.writer_features}),
            properties=properties,
        )
        return self._asked[entry.id]

    def asked_of(self, table_id: str) -> NewPlace | None:
        return self._asked.get(table_id)


def _chosen(client: UnityClient) -> str:
    """The catalog's name, as the server spells it."""
    try:
        names = [str(one["name"]) for one in client.listed("/catalogs", "catalogs", {})]
    except Declined as error:
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


def _database(found: Answer) -> DatabaseEntry:
    return DatabaseEntry(
        id=str(found.get("schema_id", "")),
        number=0,
        name=str(found["name"]),
        created_ms=int(found.get("created_at") or 0),
        comment=found.get("comment"),
        properties=found.get("properties") or {},
    )


def _listed_table(found: Answer) -> TableEntry:
    return TableEntry(
        id=str(found.get("table_id", "")),
        number=0,
        database=str(found["schema_name"]),
        database_number=0,
        name=str(found["name"]),
        location=str(found.get("storage_location", "")),
        managed=found.get("table_type") == "MANAGED",
        created_ms=int(found.get("created_at") or 0),
        modified_ms=int(found.get("updated_at") or 0),
    )
