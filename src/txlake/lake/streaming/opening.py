"""The opening of a table in one of Spark's Python processes, from a data source's options.

No Spark session is started there. The process shares only the store and the catalog's database with
the user's process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from txlake.catalog import DEFAULT_DATABASE
from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.connecting import session_on
from txlake.lake.streaming.options import Place
from txlake.session.branch_use import BranchMark, engine_at, engine_on
from txlake.session.catalog_access import refuse_lost
from txlake.session.engine import Engine, Handle
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.spark.plane import SparkPlane
from txlake.sql.statements import Table, TableName, table_of
from txlake.storage import open_store
from txlake.system import System


def create_session(place: Place) -> Session:
    """Return a session on the table's lake and branch, or on path tables if `place` names no lake.

    Raises InvalidRequest for a lake that can't be opened, and for a branch that has ended or whose
    lake isn't given; Unavailable when the lake can't be reached.
    """
    settings = Settings(allow_outside_paths=place.outside_paths)
    if place.lake is not None:
        session = session_on(
            place.lake,
            handlers=HANDLERS,
            make_spark=_no_spark,
            catalog=place.catalog,
            storage_options=place.storage_options,
            settings=settings,
        )
        return session if place.branch is None else _on_branch(session, place)
    if place.branch is not None:
        raise InvalidRequest(
            f"branch {place.branch!r}: a branch is of a lake, and no lake is given: say "
            '.option("lake", warehouse), or leave the branch out'
        )
    system = System()
    plane = SparkPlane(
        make_spark=_no_spark,
        system=system,
        settings=settings,
        open_store=open_store,
        storage_options=place.storage_options,
    )
    return Session(
        Engine(
            system=system,
            settings=settings,
            plane=plane,
            storage_options=place.storage_options,
        ),
        HANDLERS,
    )


def _on_branch(session: Session, place: Place) -> Session:
    """Return a session on the branch of a place in place of a lake's, which is closed if that
    fails. Raises InvalidRequest if there is no such branch.
    """
    assert place.branch is not None
    try:
        engine = session.engine
        if place.branch_id is None:
            engine = engine_on(engine, place.branch)
        else:
            engine = engine_at(engine, BranchMark(place.branch_id, place.branch))
    except BaseException:
        session.close()
        session.engine.close()
        raise
    session.close()
    return Session(engine, HANDLERS, level=session.level)


@contextmanager
def open_session(place: Place) -> Iterator[Session]:
    """Yield a session as `create_session`, and close it and its engine afterwards.

    Raises as `create_session`.
    """
    session = create_session(place)
    try:
        yield session
    finally:
        session.close()
        session.engine.close()


def find_table(session: Session, place: Place) -> Handle:
    """Return the table's handle.

    Raises InvalidRequest when there is no table and for a name without a lake, and as
    `refuse_lost`.
    """
    engine = session.engine
    refuse_lost(engine)
    table = table_of(place.table)
    require_lake(place, table)
    handle = engine.find(table, DEFAULT_DATABASE)
    if handle is None or handle.log.latest_or_none() is None:
        raise InvalidRequest(
            f"{place.table}: there is no such table; check the name or the path, or create it first"
        )
    return handle


def require_lake(place: Place, table: Table) -> None:
    """Raise InvalidRequest for a table name without a lake."""
    if isinstance(table, TableName) and place.lake is None:
        raise InvalidRequest(
            f"{place.table}: a name means a table of a lake, and no lake is given: say "
            '.option("lake", warehouse), use the lake\'s own methods, or name the table by its '
            "path or URL"
        )


def _no_spark() -> NoReturn:
    """Raise UnsupportedFeature: a data source's process has no Spark session."""
    raise UnsupportedFeature(
        "this needs a Spark session, which a data source's process doesn't have: use the lake's "
        "own methods (lake.write_stream, lake.write), or txlake.enable"
    )
