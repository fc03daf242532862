"""Branches: lanes in the history, the list, a branch's page, publish and drop."""

from __future__ import annotations

import re

import pytest

from tests.console.browser import READER, TOKENS, Browser
from tests.console.lakes import PlainLake
from txlake.catalog.branch_usage import BranchCommit
from txlake.console.branch_lanes import Line, draw_branches
from txlake.console.branches import lines_of
from txlake.server.tokens import Token
from txlake.session.session import Session

LEFT, RIGHT, MAIN_Y = 190, 1190, 20
AGENT = Token(token="a token for branches alone", name="agent", branches=True)


def _commit(branch: int, time_ms: int) -> BranchCommit:
    return BranchCommit(branch=branch, time_ms=time_ms, table="a.t", version=3, operation="WRITE")


def _points(path: str) -> list[tuple[float, float]]:
    """The first and the last point of a path; the last of an open one is on its own lane."""
    numbers = [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", path)]
    horizontal = re.search(r"H(\d+(?:\.\d+)?)$", path)
    last = (float(horizontal[1]), numbers[1]) if horizontal else (numbers[-2], numbers[-1])
    return [(numbers[0], numbers[1]), last]


def test_a_published_branch_leaves_main_and_comes_back() -> None:
    line = Line(name="x", start_ms=200, end_ms=700, instant=9)
    made = draw_branches([line], [], 0, 1_000)
    assert made is not None
    (lane,) = made.lanes
    assert _points(lane.path) == [(LEFT + 200, MAIN_Y), (LEFT + 700, MAIN_Y)]
    assert f" {lane.y} H" in lane.path, "on its own lane in between"
    assert (lane.line.href, lane.title) == ("/history/9", "branch x, published at instant 9")


def test_an_open_branch_goes_on_and_has_its_commits() -> None:
    lines = [
        Line(name="a/b", number=4, start_ms=100),
        Line(name="y", number=5, parent=4, start_ms=300),
    ]
    commits = [_commit(5, 500), _commit(4, 200), _commit(99, 300)]
    made = draw_branches(lines, commits, 0, 1_000)
    assert made is not None
    first, second = made.lanes
    assert _points(first.path)[0] == (LEFT + 100, MAIN_Y)
    assert first.path.endswith(f"H{RIGHT}")
    assert _points(second.path)[0] == (LEFT + 300, first.y), "from the lane of its parent"
    assert [(dot.x, dot.y, dot.href) for dot in made.dots] == [
        (LEFT + 500, second.y, "/branches/one?name=y"),
        (LEFT + 200, first.y, "/branches/one?name=a%2Fb"),
    ]
    assert made.dots[0].title == "WRITE a.t version 3"


@pytest.mark.parametrize(
    ("line", "is_drawn", "ends"),
    [
        (Line(name="x", start_ms=0, end_ms=99, instant=1), False, None),
        (Line(name="x", start_ms=201, number=1), False, None),
        (Line(name="x", start_ms=0, end_ms=150, instant=1), True, (LEFT, MAIN_Y)),
        (Line(name="x", start_ms=150, end_ms=900, instant=1), True, None),
    ],
)
def test_what_lies_outside_of_the_time_is_cut(
    line: Line, is_drawn: bool, ends: tuple[float, float] | None
) -> None:
    made = draw_branches([line], [], 100, 200)
    assert (made is not None) is is_drawn
    if made is None:
        return
    (lane,) = made.lanes
    if ends is not None:
        assert lane.path.startswith(f"M{LEFT} {lane.y} ")
        assert _points(lane.path)[1] == (LEFT + 500, MAIN_Y)
    else:
        assert lane.path.endswith(f"H{RIGHT}")


def test_a_short_branch_does_not_turn_back() -> None:
    made = draw_branches([Line(name="x", start_ms=500, end_ms=502, instant=1)], [], 0, 1_000)
    assert made is not None
    xs = [
        float(x) for x in re.findall(r"(?:[MCH] ?|(?<=\d) )(\d+\.?\d*)(?= |$)", made.lanes[0].path)
    ]
    assert max(xs) <= LEFT + 502


def test_more_branches_than_there_is_room_for_are_counted() -> None:
    made = draw_branches(
        [Line(name=f"b{n}", number=n + 1, start_ms=n) for n in range(20)], [], 0, 50
    )
    assert made is not None
    assert [lane.line.name for lane in made.lanes] == [f"b{n}" for n in range(4, 20)]
    assert made.left_out == 4


# Pages


def _on(lake: PlainLake, name: str, text: str) -> Session:
    session = lake.another()
    lake.sql(f"CREATE BRANCH `{name}`; USE BRANCH `{name}`; {text}", session)
    return session


def test_the_history_shows_open_and_published_branches(lake: PlainLake, browser: Browser) -> None:
    assert "Branches</h2>" not in browser.page("/history")
    _on(lake, "nightly", "INSERT INTO stock VALUES ('nail', 5); DELETE FROM orders WHERE id = 1")
    opened = browser.page("/history")
    assert "branch nightly, open" in opened
    assert opened.count('aria-label="WRITE default.stock version 1"') == 1
    created = lake.engine.catalog.of_lake().branches.find("nightly")
    assert created is not None
    lake.sql("PUBLISH BRANCH nightly")
    _on(lake, "next", "INSERT INTO stock VALUES ('nut', 5)")
    text = browser.page("/history")
    (instant,) = re.findall(r"branch nightly, published at instant (\d+)</title></text>", text)
    assert f'<a href="/history/{instant}">nightly</a>: created' in text
    assert "branch next, open" in text
    facts = browser.page(f"/history/{instant}")
    assert f"<dt>branchInstant</dt><dd>{created.fork_sequence}</dd>" in facts
    assert f"<dt>branchCreated</dt><dd>{created.created_ms}</dd>" in facts


def test_a_branch_that_was_published_version_by_version_has_a_lane(
    lake: PlainLake, browser: Browser
) -> None:
    """If a table got several versions: one alone doesn't tell it from another commit."""
    _on(lake, "x", "INSERT INTO stock VALUES ('nail', 5); INSERT INTO stock VALUES ('nut', 5)")
    _on(lake, "y", "INSERT INTO orders VALUES (9, 'x', 1)")
    created = lake.engine.catalog.of_lake().branches.find("x")
    assert created is not None
    lake.sql("PUBLISH BRANCH x PER TABLE; PUBLISH BRANCH y PER TABLE")
    text = browser.page("/history")
    assert "branch x, published at instant" in text
    assert "branch y" not in text
    [line] = lines_of(lake.engine, lake.engine.catalog.of_lake().ledger.newest_commits())
    assert (line.name, line.start_ms) == ("x", created.created_ms)


def test_a_branch_after_the_newest_commit_is_in_the_history(
    lake: PlainLake, browser: Browser
) -> None:
    newest = max(one.time_ms for one in lake.engine.catalog.of_lake().ledger.newest_commits())
    while lake.engine.system.now_ms() <= newest + 1_000:
        continue  # a range of time has at least a second
    lake.sql("CREATE BRANCH later")
    assert "branch later, open" in browser.page("/history")


def test_a_published_branch_whose_commits_are_gone_has_no_lane(
    lake: PlainLake, browser: Browser
) -> None:
    _on(lake, "x", "INSERT INTO stock VALUES ('nail', 5)")
    lake.sql("PUBLISH BRANCH x; DROP TABLE stock")
    text = browser.page("/history")
    assert "PUBLISH BRANCH" in text
    assert "Branches</h2>" not in text


def test_the_list_has_branches_and_tags(lake: PlainLake, browser: Browser) -> None:
    assert "No branch is open" in browser.page("/branches")
    _on(lake, "nightly/1", "INSERT INTO stock VALUES ('nail', 5)")
    lake.sql("CREATE TAG old RETAIN 1 DAY")
    text = browser.page("/branches")
    assert '<a href="/branches/one?name=nightly%2F1">nightly/1</a>' in text
    assert "nightly/1" in browser.page("/branches/one?name=nightly%2F1")
    assert "<h2>Tags</h2>" in text
    assert browser.get("/branches/one?name=old").status_code == 404
    assert browser.get("/branches/one?name=nobody").status_code == 404
    assert browser.get("/branches/one").status_code == 404


def test_a_page_has_what_the_branch_changed_and_would_meet(
    lake: PlainLake, browser: Browser
) -> None:
    _on(lake, "x", "UPDATE orders SET pieces = 1 WHERE id = 1; CREATE TABLE made (id INT)")
    text = browser.page("/branches/one?name=X")
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", text)
    assert [row.split("</td><td>")[:2] for row in rows[:2]] == [
        ["default.made", "created"],
        ["default.orders", "changed"],
    ]
    assert text.count("<td>publishes</td>") == 2
    assert "Publish it" not in text
    lake.sql("UPDATE orders SET pieces = 2 WHERE id = 1")
    conflicts = browser.page("/branches/one?name=x")
    assert "ConcurrentAppendException" in conflicts
    assert "default.orders" in conflicts


def test_a_lock_that_is_not_free_is_told_and_not_waited_for(
    lake: PlainLake, browser: Browser
) -> None:
    _on(lake, "x", "ALTER TABLE orders ADD COLUMN c INT")
    lake.sql("BEGIN; SELECT * FROM orders", lake.another())
    text = browser.page("/branches/one?name=x")
    assert "LockTimeout" in text
    assert "default.orders</td><td>changed" in text


def _confirmation(browser: Browser, path: str) -> dict[str, str]:
    """The fields of the form of a page."""
    return dict(re.findall(r'name="(name|id|versions)" value="([^"]*)"', browser.page(path)))


def test_publish_asks_first_and_then_does_it(lake: PlainLake, writer: Browser) -> None:
    _on(lake, "x", "UPDATE orders SET pieces = 1 WHERE id = 1")
    assert "/branches/publish?name=x" in writer.page("/branches/one?name=x")
    page = "/branches/publish?name=x"
    fields = _confirmation(writer, page)
    assert "Publish branch x to main?" in writer.page(page)
    assert lake.sql("SELECT pieces FROM orders WHERE id = 1") == [(10,)]
    done = writer.send("/branches/publish", fields, page=page)
    assert (done.status_code, done.url.path) == (200, "/history")
    assert lake.sql("SELECT pieces FROM orders WHERE id = 1") == [(1,)]
    (instant,) = re.findall(r'href="/history/(\d+)">x</a>', done.text)
    assert "by ann in the console" in writer.page(f"/history/{instant}")


def test_drop_asks_first_and_then_does_it(lake: PlainLake, writer: Browser) -> None:
    _on(lake, "x", "DELETE FROM orders")
    page = "/branches/drop?name=x"
    fields = _confirmation(writer, page)
    assert "1 version that were committed on it are lost" in writer.page(page)
    done = writer.send("/branches/drop", fields, page=page)
    assert (done.status_code, done.url.path) == (200, "/branches")
    assert lake.sql("SHOW BRANCHES") == []


@pytest.mark.parametrize("what", ["publish", "drop"])
@pytest.mark.parametrize("how", ["another commit", "another branch"])
def test_a_branch_that_has_changed_since_is_left_alone(
    lake: PlainLake, writer: Browser, what: str, how: str
) -> None:
    session = _on(lake, "x", "INSERT INTO stock VALUES ('nail', 1)")
    page = f"/branches/{what}?name=x"
    fields = _confirmation(writer, page)
    if how == "another commit":
        lake.sql("INSERT INTO stock VALUES ('nut', 1)", session)
    else:
        lake.sql("DROP BRANCH x")
        _on(lake, "x", "INSERT INTO stock VALUES ('bolt', 1)")
    answer = writer.send(f"/branches/{what}", fields, page=page)
    assert answer.status_code == 400
    assert "has changed since you were asked" in answer.text
    assert len(lake.sql("SHOW BRANCHES")) == 1
    assert lake.sql("SELECT * FROM stock") == []


def test_a_conflict_is_told_and_leaves_the_branch(lake: PlainLake, writer: Browser) -> None:
    _on(lake, "x", "UPDATE orders SET pieces = 1 WHERE id = 1")
    lake.sql("UPDATE orders SET pieces = 2 WHERE id = 1")
    page = "/branches/publish?name=x"
    answer = writer.send("/branches/publish", _confirmation(writer, page), page=page)
    assert answer.status_code == 503
    assert "ConcurrentAppendException" in answer.text
    assert len(lake.sql("SHOW BRANCHES")) == 1


@pytest.mark.parametrize("token", ["", READER, AGENT.token])
@pytest.mark.parametrize("what", ["publish", "drop"])
def test_who_may_only_look_changes_nothing(lake: PlainLake, token: str, what: str) -> None:
    """Nor does a token for branches: the console has no branches of its own."""
    _on(lake, "x", "INSERT INTO stock VALUES ('nail', 1)")
    with Browser(lake.engine, (*TOKENS, AGENT) if token else ()) as browser:
        if token:
            assert browser.log_in(token).status_code == 200
        assert "it…" not in browser.page("/branches/one?name=x")
        page = f"/branches/{what}?name=x"
        fields = _confirmation(browser, page)
        assert browser.send(f"/branches/{what}", fields, page=page).status_code == 403
    assert len(lake.sql("SHOW BRANCHES")) == 1
