"""The console's process: it opens a lake and shows it until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txlake.console import playground_pages
from txlake.console.app import Form, Page, Section, application
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.console.playground import Playgrounds
from txlake.errors import InvalidRequest
from txlake.server.serving import ServerSettings, listen, load_tokens
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serve(session: Session, settings: ServerSettings, *, on_started: Callable[[str], None]) -> None:
    """Serve a console of the session's lake until the process is stopped.

    `on_started` is called with the console's address once it accepts requests.

    Raises InvalidRequest: the token file can't be read, it is missing although other hosts could
    connect, or the address isn't available.
    """
    tokens = load_tokens(settings)
    engine = session.engine
    if isinstance(engine.plane, SparkPlane):
        engine.plane.make_spark = no_spark
    sections = [playground_section(Playgrounds())]
    listen(
        application(engine, tokens, host=settings.host, sections=sections),
        settings,
        on_started=on_started,
    )


def playground_section(playgrounds: Playgrounds) -> Section:
    """Return the playground's page, for every visitor: it only changes its own small lakes."""

    def view(request: PageRequest) -> TemplateValues:
        return playground_pages.page_values(playgrounds, request.visitor.key, request.query)

    def action(request: PageRequest) -> str:
        return playground_pages.submit(playgrounds, request.visitor.key, request.form)

    path = playground_pages.PATH
    return Section(
        pages=[Page(path, "playground.html", view, "Playground")],
        forms=[Form(path, action)],
        close=playgrounds.close,
    )


def no_spark() -> SparkSession:
    """Raise InvalidRequest, in place of starting a Spark session."""
    raise InvalidRequest("the console runs without Spark, and this needs it: use SQL for it")
