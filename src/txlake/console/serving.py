"""The console's process: a lake is opened and shown until the process is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txlake.console import playground_pages
from txlake.console.app import Form, Page, Room, application
from txlake.console.playground import Playgrounds
from txlake.console.visits import Values, Visit
from txlake.errors import InvalidRequest
from txlake.server.serving import ServerSettings, listen, load_tokens
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serve(session: Session, settings: ServerSettings, *, on_started: Callable[[str], None]) -> None:
    """Shows the session's lake until the process is told to stop.

    `on_started` is called with the console's address once it takes requests.

    Raises InvalidRequest: the token file can't be read, there is none and others than this host
    could look, or the address can't be had.
    """
    tokens = load_tokens(settings)
    engine = session.engine
    if isinstance(engine.plane, SparkPlane):
        engine.plane.make_spark = no_spark
    rooms = [playground_room(Playgrounds())]
    listen(
        application(engine, tokens, host=settings.host, rooms=rooms),
        settings,
        on_started=on_started,
    )


def playground_room(playgrounds: Playgrounds) -> Room:
    """The playground's page, for everybody who may look: it changes small lakes of its own."""

    def look(visit: Visit) -> Values:
        return playground_pages.shown(playgrounds, visit.visitor.key, visit.query)

    def act(visit: Visit) -> str:
        return playground_pages.posted(playgrounds, visit.visitor.key, visit.form)

    path = playground_pages.PATH
    return Room(
        pages=[Page(path, "playground.html", look, "Playground")],
        forms=[Form(path, act)],
        close=playgrounds.close,
    )


def no_spark() -> SparkSession:
    """Stands where a Spark session would be started. Raises InvalidRequest."""
    raise InvalidRequest("the console runs without Spark, and this needs it: use SQL for it")
