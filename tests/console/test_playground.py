"""The playground: every timeline at every level, what waits, and what it doesn't do.

The timelines are the documents' own cases, so that this tests txlake against them too.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader, StrictUndefined
from pyspark import SparkContext

import txlake.console.playground
from tests.hermitage.expected import expected
from tests.hermitage.running import Level, Place
from tests.hermitage.scripts import SCRIPTS, Script, Seen
from txlake.console.inspector import SessionActivity
from txlake.console.playground import (
    STATEMENTS_MAX,
    TEXT_MAX,
    HistoryEntry,
    Playground,
    Playgrounds,
    PlaygroundState,
    StatementStatus,
)
from txlake.console.playground_pages import PATH, page_values, submit
from txlake.console.timelines import LEVELS, TIMELINES, Timeline
from txlake.errors import InvalidRequest

ALTER_BLOCKS = "fabric-alter-blocks"
TWO_ROWS = "databricks-two-rows"
USUAL = "write_serializable"
WAIT_S = 20.0
RUNS = [(timeline, level) for timeline in TIMELINES.values() for level in timeline.outcomes]
# Conditions of Hermitage's that need Spark, and those that find the same rows of these values.
INSTEAD = {
    "PMP": ("value % 3 = 0", "value >= 30"),
    "PMP, write": ("value = value + 10", "value = value + 10 WHERE value > 0"),
    "G2": ("value % 3 = 0", "value >= 30"),
    "G-single, predicate": ("value % 5 = 0", "value IN (10, 20)"),
}
INSTEAD_TOO = {"G-single, predicate": ("value % 3 = 0", "value IN (12, 18)")}
# Sums need Spark.
LEFT_OUT = {"G2, in writes"}


@pytest.fixture
def begun() -> Iterator[Callable[[str, str], Playground]]:
    """Begins playgrounds, which end with the test."""
    made: list[Playground] = []

    def begin(timeline: str, level: str = USUAL) -> Playground:
        made.append(Playground(timeline, level))
        return made[-1]

    yield begin
    for one in made:
        one.close()


@pytest.fixture
def playgrounds() -> Iterator[Playgrounds]:
    made = Playgrounds()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def without_a_jvm() -> Iterator[None]:
    """No statement starts Spark; another test's may run already."""
    before = SparkContext._gateway
    yield
    assert SparkContext._gateway is before


def steps(playground: Playground, count: int) -> PlaygroundState:
    for _ in range(count):
        playground.step()
    return playground.state()


def seen(play: PlaygroundState) -> Seen:
    """What Hermitage's sessions saw, as its own check wants it."""
    reads: dict[str, list[tuple[tuple[int, int], ...]]] = {}
    committed: set[str] = set()
    for entry in play.entries:
        if entry.sql.startswith("SELECT") and entry.result is not None:
            rows = tuple(sorted(entry.result.rows))
            reads.setdefault(entry.session, []).append(rows)  # type: ignore[arg-type]
        elif entry.sql == "COMMIT" and entry.status is StatementStatus.DONE:
            committed.add(entry.session)
    [table] = play.report.tables
    return Seen(
        {name: tuple(rows) for name, rows in reads.items()},
        frozenset(committed),
        table.rows,  # type: ignore[arg-type]
    )


def hermitage(script: Script) -> Timeline:
    [found] = [
        one
        for one in TIMELINES.values()
        if one.family == "Hermitage" and one.title.startswith(f"{script.name}: ")
    ]
    return found


# Timelines


@pytest.mark.broad(keep=17)
@pytest.mark.parametrize(("timeline", "level"), RUNS, ids=lambda one: getattr(one, "name", one))
def test_a_timeline_ends_as_it_says(
    timeline: Timeline, level: str, begun: Callable[[str, str], Playground]
) -> None:
    playground = begun(timeline.name, level)
    playground.finish()
    play = playground.state()
    outcome = timeline.outcomes[level]
    assert play.next is None
    lost: dict[str, str] = {}
    for entry in play.entries:
        if entry.error is not None:
            lost.setdefault(entry.session, entry.error.error)
    assert lost == outcome.lost
    assert {one.step for one in play.entries if one.waited_for} == outcome.waits
    assert {one.name: one.rows for one in play.report.tables} == outcome.rows
    assert play.is_expected is True
    assert play.report.locks == () or any(
        one.activity is SessionActivity.OPEN for one in play.report.sessions
    )
    if timeline.family == "Hermitage":
        [script] = [one for one in SCRIPTS if timeline.title.startswith(f"{one.name}: ")]
        cell = expected()[script.name, Level[level.upper()], Place.CATALOG]
        assert script.occurred(seen(play)) == (cell == "allowed")
        told = ", ".join(f"{name}: {error}" for name, error in outcome.lost.items())
        assert cell == (told or cell)
        assert bool(told) == (cell not in {"allowed", "snapshot"})


@pytest.mark.parametrize(
    "script", [one for one in SCRIPTS if one.name not in LEFT_OUT], ids=lambda one: one.name
)
def test_hermitages_steps_are_those_of_its_tests(script: Script) -> None:
    said = [(step.session, step.sql) for step in hermitage(script).steps if step.sql != "BEGIN"]
    wanted = []
    for session, sql in script.lines(1):
        text = sql.format(one="test", two="test", both="test")
        for changes in (INSTEAD, INSTEAD_TOO):
            text = text.replace(*changes.get(script.name, ("", "")))
        wanted.append((session, text))
    assert said == wanted


def test_timelines_say_what_they_are() -> None:
    for timeline in TIMELINES.values():
        assert 2 <= len(timeline.sessions) <= 3
        assert 2 <= len(re.findall(r"[.?](?: |$)", timeline.lesson)) <= 3, timeline.name
        assert set(timeline.outcomes) <= set(LEVELS)
        assert re.fullmatch(r"[a-z0-9-]+", timeline.name)
        for outcome in timeline.outcomes.values():
            assert set(outcome.lost) <= set(timeline.sessions)
            assert outcome.waits <= set(range(1, len(timeline.steps) + 1))
    families = [one.family for one in TIMELINES.values()]
    assert {"Databricks", "Microsoft Fabric", "Amazon Redshift", "Hermitage"} <= set(families)


# Waiting


def test_what_waits_is_seen_and_goes_on_with_the_commit(
    begun: Callable[..., Playground],
) -> None:
    playground = begun(ALTER_BLOCKS)
    play = steps(playground, 3)
    waiting = play.entries[2]
    assert waiting.status is StatementStatus.WAITS
    assert waiting.waited_for == "Sch-S on stock, after T1"
    first, second, third = play.report.sessions
    assert (first.activity, second.activity) == (SessionActivity.OPEN, SessionActivity.WAITS)
    assert third.activity is SessionActivity.IDLE
    locks = {(one.session, one.mode, one.status, one.blocked_by) for one in play.report.locks}
    assert ("T1", "Sch-M", "GRANT", "") in locks
    assert ("T2", "Sch-S", "WAIT", "T1") in locks
    with pytest.raises(InvalidRequest, match="T2 still waits"):
        playground.run("T2", "SELECT * FROM stock")
    play = steps(playground, 2)
    waiting = play.entries[2]
    assert waiting.status is StatementStatus.DONE
    assert waiting.result is not None
    assert waiting.result.columns == ("item", "pieces", "shelf")
    assert waiting.ended_at == 5
    assert play.is_expected


def test_what_waits_goes_on_with_a_rollback(begun: Callable[..., Playground]) -> None:
    playground = begun(ALTER_BLOCKS)
    steps(playground, 3)
    playground.run("T1", "ROLLBACK")
    waiting = playground.state().entries[2]
    assert waiting.result is not None
    assert waiting.result.columns == ("item", "pieces")
    assert waiting.waited_for


def test_each_step_has_its_picture(begun: Callable[..., Playground]) -> None:
    playground = begun(TWO_ROWS)
    play = steps(playground, 3)
    first = play.report.sessions[0]
    assert (first.activity, first.versions) == (SessionActivity.OPEN, {"orders": 1})
    assert first.instant == play.report.instant
    assert play.report.sessions[1].instant is None
    locks = {(one.session, one.mode, one.resource) for one in play.report.locks}
    assert locks == {("T1", "S", "database default"), ("T1", "IX", "orders")}
    play = steps(playground, 3)
    pictures = [entry.after for entry in play.entries]
    versions = [one.tables[0].version for one in pictures if one is not None]
    assert versions == [1, 1, 1, 1, 2, 3]
    assert all(one.activity is SessionActivity.IDLE for one in play.report.sessions)
    with pytest.raises(InvalidRequest, match="all steps"):
        playground.step()


def test_who_lost_is_told_why_and_its_steps_are_skipped(
    begun: Callable[..., Playground],
) -> None:
    playground = begun("fabric-deadlock")
    play = steps(playground, 6)
    lost = play.report.sessions[1]
    assert lost.activity is SessionActivity.LOST
    assert lost.error is not None
    assert (lost.error.error, lost.error.codes) == ("Deadlock", (1205,))
    assert "same order" in lost.error.advice
    playground.run("T2", "SELECT * FROM orders")  # its transaction has failed, and says so
    assert "ROLLBACK" in said(playground)
    playground.run("T2", "ROLLBACK")
    assert playground.state().report.sessions[1].activity is SessionActivity.IDLE

    playground = begun("databricks-one-row")
    playground.run("T2", "SELECT * FROM nowhere")
    play = steps(playground, 2)
    assert play.entries[1].status is StatementStatus.DONE
    assert play.entries[2].status is StatementStatus.SKIPPED
    assert play.is_expected is None


def said(playground: Playground) -> str:
    """What the last statement's error says."""
    last = playground.state().entries[-1]
    return last.refusal or (last.error.message if last.error is not None else "")


def test_all_steps_stop_where_one_waits(begun: Callable[..., Playground]) -> None:
    playground = begun(ALTER_BLOCKS)
    playground.run("T3", "BEGIN; ALTER TABLE stock ADD COLUMN shelf INT")
    playground.finish()
    play = playground.state()
    assert (play.next, play.next_is_blocked) == (5, True)
    assert play.report.waits == {
        "T1": "X on the name stock, after T3",
        "T2": "Sch-S on stock, after T3",
    }


@pytest.mark.parametrize("timeline", [ALTER_BLOCKS, "fabric-alter-waits"])
def test_a_new_beginning_lets_go_what_waits(
    timeline: str, begun: Callable[..., Playground]
) -> None:
    playground = begun(timeline)
    play = steps(playground, 4)
    assert play.report.waits
    folder = playground.folder
    playground.reset(TWO_ROWS, "snapshot")
    assert not folder.exists()
    play = playground.state()
    assert (play.timeline.name, play.level, play.entries) == (TWO_ROWS, "snapshot", ())
    assert play.report.locks == ()
    playground.finish()
    assert playground.state().is_expected


# What it doesn't do


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT * FROM delta.`/etc/passwd`", "not by a path"),
        ("SELECT * FROM text.`/etc/passwd`", "not by a path"),
        ("CREATE TABLE x (id INT) LOCATION '/tmp/x'", "not by a path"),
        ("COPY INTO orders FROM '/tmp/x' FILEFORMAT = PARQUET", "isn't served"),
        ("SET spark.sql.ansi.enabled = false", "isn't served"),
        ("SELECT reflect('java.lang.System', 'exit', 1)", "any method of the JVM"),
        ("SELECT TRANSFORM (id) USING 'cat' FROM orders", "runs a program"),
        ("BEGIN ATOMIC LOOP SET VAR x = 1; END LOOP; END", "variables aren't served"),
        ("EXECUTE IMMEDIATE 'SELECT 1'", "isn't served"),
    ],
)
def test_what_reaches_beyond_the_lake_is_not_carried_out(
    sql: str, why: str, begun: Callable[..., Playground]
) -> None:
    playground = begun(TWO_ROWS)
    playground.run("T1", "BEGIN")
    playground.run("T1", sql)
    play = playground.state()
    assert play.entries[-1].status is StatementStatus.REFUSED
    assert why in said(playground)
    assert play.report.sessions[0].activity is SessionActivity.OPEN


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM orders",
        "INSERT INTO orders SELECT * FROM orders",
        "OPTIMIZE orders ZORDER BY (id)",
        "CREATE TABLE copied AS SELECT * FROM orders",
    ],
)
def test_what_needs_spark_is_refused(sql: str, begun: Callable[..., Playground]) -> None:
    playground = begun(TWO_ROWS)
    playground.run("T1", sql)
    assert said(playground).startswith("the playground runs without Spark")
    playground.run("T1", "SELECT * FROM orders WHERE id = 1")
    answer = playground.state().entries[-1].result
    assert answer is not None
    assert answer.rows == [(1, "open")]


def test_ones_own_statements(begun: Callable[..., Playground]) -> None:
    playground = begun(TWO_ROWS)
    values = ", ".join(f"({number}, 'open')" for number in range(3, 50))
    playground.run("T1", f"BEGIN; INSERT INTO orders VALUES {values}; COMMIT")
    playground.run("T2", "SELECT * FROM orders")
    play = playground.state()
    answer = play.entries[-1].result
    assert answer is not None
    assert (len(answer.rows), answer.total) == (20, 49)
    [table] = play.report.tables
    assert table.rows is not None
    assert (len(table.rows), table.total, table.version) == (20, 49, 2)
    playground.run("T2", "SELEKT 1")
    assert "SELEKT" in said(playground)
    for session, sql, why in (
        ("T9", "SELECT 1", "there is no session 'T9'; there are: T1, T2"),
        ("T1", "  ", "found no text"),
        ("T1", "SELECT 1 -- " + "x" * TEXT_MAX, f"takes {TEXT_MAX}"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(why)):
            playground.run(session, sql)


def test_statements_are_bounded(
    begun: Callable[..., Playground], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(len(one.steps) for one in TIMELINES.values()) < STATEMENTS_MAX
    monkeypatch.setattr(txlake.console.playground, "STATEMENTS_MAX", 2)
    playground = begun(TWO_ROWS)
    steps(playground, 2)
    with pytest.raises(InvalidRequest, match="no more may be"):
        playground.step()
    with pytest.raises(InvalidRequest, match="no more may be"):
        playground.run("T1", "SELECT 1")
    playground.reset(TWO_ROWS, USUAL)
    playground.step()


# Many of them


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_two_browsers_have_two_lakes(playgrounds: Playgrounds) -> None:
    first = playgrounds.begin("a", TWO_ROWS, USUAL)
    second = playgrounds.begin("b", TWO_ROWS, USUAL)
    first.run("T1", "DELETE FROM orders WHERE id = 1")
    assert first.state().report.tables[0].total == 1
    assert second.state().report.tables[0].total == 2
    assert second.state().entries == ()
    assert first.folder != second.folder
    assert playgrounds.find("a") is first
    assert playgrounds.find("c") is None
    assert playgrounds.begin("a", TWO_ROWS, "snapshot") is first


def test_there_are_only_so_many_and_idle_ones_end() -> None:
    clock = Clock()
    playgrounds = Playgrounds(clock, count_max=2, idle_ms=60_000)
    try:
        first = playgrounds.begin("a", TWO_ROWS, USUAL)
        playgrounds.begin("b", TWO_ROWS, USUAL)
        with pytest.raises(InvalidRequest, match="2 playgrounds are in use"):
            playgrounds.begin("c", TWO_ROWS, USUAL)
        clock.now_ms = 50_000
        assert playgrounds.find("b") is not None
        clock.now_ms = 70_000
        third = playgrounds.begin("c", TWO_ROWS, USUAL)
        assert playgrounds.find("a") is None
        assert not first.folder.exists()
        with pytest.raises(InvalidRequest, match="has ended"):
            first.step()
        assert playgrounds.find("b") is not None
        assert third.folder.exists()
    finally:
        playgrounds.close()
    assert not third.folder.exists()
    with pytest.raises(InvalidRequest, match="about to end"):
        playgrounds.begin("d", TWO_ROWS, USUAL)


def test_nothing_is_left(begun: Callable[..., Playground]) -> None:
    before = set(threading.enumerate())
    playground = begun("fabric-alter-waits")
    steps(playground, 4)
    assert len(set(threading.enumerate()) - before) >= 3
    assert playground.folder.is_dir()
    playground.close()
    playground.close()
    assert not playground.folder.exists()
    left = {one for one in threading.enumerate() if one.name.startswith("playground T")}
    assert left <= before


def test_unknown_names_are_told(begun: Callable[..., Playground]) -> None:
    with pytest.raises(InvalidRequest, match="there is no timeline 'x'; there are: databricks"):
        begun("x", USUAL)
    with pytest.raises(InvalidRequest, match="no level 'write_serializable'; it has: snapshot"):
        begun("redshift-1023", USUAL)
    playground = begun(TWO_ROWS)
    with pytest.raises(InvalidRequest, match="no level 'x'"):
        playground.reset(TWO_ROWS, "x")
    playground.step()  # it is as it was


# The page

BASE = "<head>{% block styles %}{% endblock %}{% block scripts %}{% endblock %}</head>"
BASE += "<main id='main'>{% block main %}{% endblock %}</main>{% block title %}{% endblock %}"


class Markup(HTMLParser):
    """What a page is made of. It fails at what the console's policy doesn't let run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[dict[str, list[str]]] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.fields: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        assert not {name for name in found if name == "style" or name.startswith("on")}
        assert tag != "style"
        assert tag != "script" or found["src"].startswith("/static/")
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "form":
            assert (found["method"], found["action"]) == ("post", PATH)
            self.forms.append({})
        elif tag in {"input", "button", "select", "textarea"} and "name" in found:
            self.forms[-1].setdefault(found["name"], []).append(found.get("value", ""))
        if tag in {"select", "textarea"}:
            self.fields.append(found["id"])
        if tag == "label":
            self.labels.append(found["for"])


@pytest.fixture(scope="module")
def rendered() -> Callable[[Mapping[str, object]], str]:
    folder = Path(txlake.console.playground.__file__).with_name("templates")
    templates = Environment(
        loader=ChoiceLoader([DictLoader({"base.html": BASE}), FileSystemLoader(folder)]),
        autoescape=True,
        undefined=StrictUndefined,
    )
    template = templates.get_template("playground.html")
    return lambda values: template.render(csrf="proof", **values)


def test_the_page_works_by_its_forms(
    playgrounds: Playgrounds, rendered: Callable[[Mapping[str, object]], str]
) -> None:
    def look(query: Mapping[str, str] = {}) -> tuple[str, Markup]:
        text = rendered(page_values(playgrounds, "a", query))
        page = Markup(text)
        assert all(form["csrf"] == ["proof"] for form in page.forms)
        assert len(set(page.ids)) == len(page.ids)
        assert page.labels == page.fields
        return text, page

    text, page = look({"timeline": "redshift-1023"})
    assert "Serializable isolation violation" in text
    assert playgrounds.find("a") is None
    actions = [form["action"] for form in page.forms]
    assert actions == [["reset"], ["reset"], ["reset"]]

    assert submit(playgrounds, "a", {"action": "reset", "timeline": ALTER_BLOCKS}) == PATH
    text, page = look()
    assert ["step", "auto"] in [form["action"] for form in page.forms]
    assert text.count('aria-current="step"') == 1
    for _ in range(3):
        submit(playgrounds, "a", {"action": "step"})
    before, _ = look()
    assert 'data-waits="true"' in before
    assert "waits for Sch-S on stock, after T1" in " ".join(before.split())
    submit(playgrounds, "a", {"action": "auto"})
    after, _ = look()
    assert 'data-waits="false"' in after
    assert "as documented" in after
    stamps = [re.findall(r'data-stamp="([^"]*)"', one)[0] for one in (before, after)]
    assert stamps[0] != stamps[1]

    submit(playgrounds, "a", {"action": "run", "session": "T3", "sql": "SELECT '<b>' AS x"})
    submit(playgrounds, "a", {"action": "run", "session": "T3", "sql": "SELECT * FROM '<b>'"})
    text, _ = look()
    assert "<b>" not in text
    assert "&lt;b&gt;" in text


def test_every_timeline_has_a_page(
    playgrounds: Playgrounds, rendered: Callable[[Mapping[str, object]], str]
) -> None:
    for name in ("fabric-deadlock", "hermitage-otv", "fabric-alter-waits"):
        submit(playgrounds, "a", {"action": "reset", "timeline": name})
        submit(playgrounds, "a", {"action": "auto"})
        Markup(rendered(page_values(playgrounds, "a", {})))


def test_forms_that_say_nonsense(playgrounds: Playgrounds) -> None:
    for form, why in (
        ({}, "action '': expected step, run, reset or auto"),
        ({"action": "step"}, "begin again"),
        ({"action": "reset", "timeline": "x"}, "there is no timeline 'x'"),
        ({"action": "reset", "timeline": TWO_ROWS, "level": "x"}, "no level 'x'"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(why)):
            submit(playgrounds, "a", form)
    form = {"action": "reset", "timeline": "redshift-1023", "level_before": USUAL}
    submit(playgrounds, "a", form)
    assert page_values(playgrounds, "a", {})["level"] == "snapshot"
    form["level_before"] = "serializable"
    submit(playgrounds, "a", form)
    assert page_values(playgrounds, "a", {})["level"] == "serializable"
    with pytest.raises(InvalidRequest, match="there is no session"):
        submit(playgrounds, "a", {"action": "run", "sql": "SELECT 1"})


def test_moments_of_sessions_that_never_ran_have_no_answer() -> None:
    entry = HistoryEntry(number=1, session="T1", sql="COMMIT")
    assert (entry.status, entry.result, entry.error) == (StatementStatus.SKIPPED, None, None)
