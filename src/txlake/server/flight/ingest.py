"""A stream of rows as one write of a table: the command CommandStatementIngest.

Source: Arrow's FlightSql.proto, `CommandStatementIngest`; ADBC's "Bulk Data Ingestion".
"""

from __future__ import annotations

import re
from enum import IntEnum

import pyarrow as pa

from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError
from txlake.server.calls import ServedLake
from txlake.server.flight.messages import Message
from txlake.session.session import Session
from txlake.sql.statements import NativeFrame, TableName, Write

_PATH_CHARACTERS = re.compile(r"[/\\:]")


class IfMissing(IntEnum):
    """What is done where there is no table."""

    CREATE = 1
    FAIL = 2


class IfExists(IntEnum):
    """What is done with a table."""

    FAIL = 1
    APPEND = 2
    REPLACE = 3


def target_of(served: ServedLake, session: Session, command: Message) -> TableName:
    """Return the table that a command names.

    Raises ApiError for another catalog and an unknown database (404), a temporary table (501), and
    InvalidRequest for options and for a name that isn't served.
    """
    if command.temporary:
        raise ApiError("NotImplementedException", "there are no temporary tables; name one to keep")
    if command.options:
        found = sorted(command.options)[0]
        raise InvalidRequest(f"the ingestion's option {found!r} is unknown; leave it out")
    if not command.table or _PATH_CHARACTERS.search(command.table):
        raise InvalidRequest(f"expected the name of a table, found {command.table!r:.120}")
    if command.HasField("catalog") and command.catalog.lower() not in served.catalog_names:
        raise ApiError(
            "NotFoundException",
            f"there is no catalog {command.catalog!r} here; this is {served.catalog_name!r}",
        )
    database = command.schema if command.HasField("schema") else session.database
    if session.engine.catalog.database(database) is None:
        raise ApiError("NotFoundException", f"there is no database {database!r}; create it first")
    return TableName((database, command.table))


def ingest(session: Session, table: TableName, command: Message, rows: pa.Table) -> None:
    """Write rows to a table, in the session's transaction, as the command's options say.

    Raises InvalidRequest for options that it doesn't have, ApiError for a table that is there (409)
    or isn't (404) against them, and as `lake.write`.
    """
    options = command.table_definition_options
    try:
        if_missing, if_exists = IfMissing(options.if_not_exist), IfExists(options.if_exists)
    except ValueError as error:
        raise InvalidRequest(
            f"table_definition_options: expected what to do with a table that is there, and where "
            f"there is none: {error}"
        ) from error
    name = ".".join(table.parts)
    if session.exists(table, transaction=session.current):
        if if_exists is IfExists.FAIL:
            raise ApiError(
                "AlreadyExistsException", f"{name} exists already; append to it, or replace it"
            )
    elif if_missing is IfMissing.FAIL:
        raise ApiError("NotFoundException", f"there is no table {name}; create it first")
    replaces = if_exists is IfExists.REPLACE
    statement = Write(
        table=table,
        source=NativeFrame(rows),
        mode="overwrite" if replaces else "append",
        overwrite_schema=replaces,
    )
    session.carry_out(session.current, statement)
