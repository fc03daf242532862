"""CREATE, ALTER, DROP DATABASE and USE.

A database is altered or dropped only while no other session uses it. Source: Redshift's
documentation of ALTER DATABASE and of isolation levels.
"""

from __future__ import annotations

from txlake.catalog.ports import Schemas
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import parse_granularity
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.protocol.properties import MAINTENANCE_PREFIX, validate_set
from txlake.session.admission import admit_alone, database_lock
from txlake.session.catalog_access import transaction_of
from txlake.session.command import command, giving_nothing, no_table, served
from txlake.session.context import Context
from txlake.session.isolation import IGNORED, parse_ignored
from txlake.session.membership.drop_note import PROPERTY as RETENTION
from txlake.session.membership.drop_note import parse_retention
from txlake.session.membership.dropping import drop
from txlake.session.views import VIEWS
from txlake.sql.statements import AlterDatabase, CreateDatabase, DropDatabase, UseDatabase

# Databases that hold txlake's own views.
_RESERVED = {name.partition(".")[0] for name in VIEWS if "." in name} | {"pg_catalog"}


def create_database(context: Context, statement: CreateDatabase) -> None:
    """Carry out CREATE DATABASE, at once.

    Raises InvalidRequest for a name that is taken, reserved or no folder's, and for an invalid
    property.
    """
    schemas = context.engine.catalog.schemas
    if schemas is not None:
        _create_schema(context, statement, schemas)
        return
    context.engine.place_of(statement.name, "t")
    if statement.name.lower() in _RESERVED:
        raise InvalidRequest(
            f"database {statement.name!r} can't be made: its views are txlake's own"
        )
    context.engine.catalog.of_lake().create_database(
        statement.name,
        if_not_exists=statement.if_not_exists,
        comment=statement.comment,
        isolation=statement.isolation,
        properties=_checked(statement.properties),
    )


def _create_schema(context: Context, statement: CreateDatabase, schemas: Schemas) -> None:
    """Create a database in another system's catalog.

    Raises InvalidRequest for an isolation level, which databases don't have there.
    """
    if statement.isolation is not None:
        context.engine.catalog.of_lake()  # raises
    if context.engine.catalog.database(statement.name) is not None and statement.if_not_exists:
        return
    schemas.create(statement.name, comment=statement.comment, properties=dict(statement.properties))


def alter_database(context: Context, statement: AlterDatabase) -> None:
    """Carry out ALTER DATABASE ... ISOLATION LEVEL and SET DBPROPERTIES, at once.

    Raises InvalidRequest for an invalid property, and for a new level while other sessions use the
    database.
    """
    catalog, name = context.engine.catalog.of_lake(), statement.name
    context.engine.require_main("ALTER DATABASE")
    if statement.isolation is not None:
        admit_alone(context, name, f"ALTER DATABASE {name} ISOLATION LEVEL")
        catalog.set_isolation(name, statement.isolation)
    if statement.properties:
        catalog.set_properties(name, _checked(statement.properties))


def _checked(properties: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return a database's properties. Raises InvalidRequest for an invalid value."""
    checked = dict(properties)
    if GRANULARITY in checked:
        parse_granularity(checked[GRANULARITY])
    if IGNORED in checked:
        parse_ignored(checked[IGNORED])
    if RETENTION in checked:
        parse_retention(checked[RETENTION])
    for key, value in properties:
        if key.lower().startswith(MAINTENANCE_PREFIX):
            del checked[key]
            stored, text = validate_set(key, value)
            checked[stored] = text
    return checked


def drop_database(context: Context, statement: DropDatabase) -> None:
    """Carry out DROP DATABASE, with CASCADE of its tables and views too.

    It takes effect at once. Dropped tables can be undropped when there is a database of the name
    again, views can't. Raises InvalidRequest for the default database, if it has tables or views
    without CASCADE, while other sessions use it, and without IF EXISTS if there is no such
    database. For another system's catalog raises as `Schemas.drop`.
    """
    schemas = context.engine.catalog.schemas
    if schemas is not None:
        existing = context.engine.catalog.database(statement.name)
        if existing is not None or not statement.if_exists:
            schemas.drop(statement.name, cascade=statement.cascade)
        return
    catalog = context.engine.catalog.of_lake()
    context.engine.require_main("DROP DATABASE")
    if statement.if_exists and catalog.database(statement.name) is None:
        return
    catalog.require_droppable(statement.name, cascade=statement.cascade)
    admit_alone(context, statement.name, f"DROP DATABASE {statement.name}")
    with transaction_of(context.engine, context.transaction.session_number) as transaction:
        for entry in catalog.tables(statement.name):
            drop(transaction, context.engine.at_entry(entry))
    for view in catalog.views.entries(statement.name):
        catalog.views.drop(view.id)
    catalog.drop_database(statement.name)


def use_database(context: Context, statement: UseDatabase) -> None:
    """Carry out USE: set the session's current database, and hold a lock on it instead of the last.

    Raises InvalidRequest if there is no such database, and as `Locks.acquire`.
    """
    entry = context.engine.catalog.database(statement.name)
    if entry is None:
        raise InvalidRequest(f"there is no database {statement.name!r}; SHOW DATABASES lists them")
    if not context.engine.catalog.is_lake:  # another system's catalog has no locks
        context.use(statement.name)
        return
    number = context.transaction.session_number()
    used = database_lock(entry.number, LockMode.S)
    locks = context.engine.catalog.of_lake().locks
    locks.acquire(number, None, [used], context.lock_timeout_ms)
    locks.release_session_locks(number, used.resource)
    context.use(statement.name)


COMMANDS = served(
    command(CreateDatabase, giving_nothing(create_database), no_table, is_alone=True),
    command(AlterDatabase, giving_nothing(alter_database), no_table, is_alone=True),
    command(DropDatabase, giving_nothing(drop_database), no_table, is_alone=True),
    command(UseDatabase, giving_nothing(use_database), no_table, writes=False),
)
