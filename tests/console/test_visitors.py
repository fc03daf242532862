"""Who may look, and that nobody but a page of the console sends its forms."""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.console.browser import READER, TOKENS, WRITER, Browser
from tests.console.lakes import PlainLake
from txlake.console.app import FORMS, LIMITS, PAGES, Page, Section
from txlake.console.page_requests import PageRequest
from txlake.console.visitors import Visitors
from txlake.server.tokens import Token, Tokens

PLAIN_PAGES = (
    *("/", "/now", "/history", "/conflicts", "/branches", "/tables", "/tables/default.orders"),
)


@pytest.fixture
def guarded(lake: PlainLake) -> Iterator[Browser]:
    """A console that asks for tokens; nobody has logged in."""
    with Browser(lake.engine, TOKENS) as made:
        yield made


@pytest.mark.parametrize("path", PLAIN_PAGES)
def test_without_tokens_everybody_on_this_host_looks(browser: Browser, path: str) -> None:
    assert browser.page(path)


@pytest.mark.parametrize("path", PLAIN_PAGES)
def test_with_tokens_a_page_leads_to_the_login_first(guarded: Browser, path: str) -> None:
    answer = guarded.http.get(path, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?to=")
    assert "orders" not in answer.text


def test_the_login_leads_back_to_the_page(guarded: Browser) -> None:
    assert guarded.get("/tables?name=or").url.path == "/login"
    answer = guarded.send(
        "/login", {"token": WRITER, "to": "/tables?name=or"}, page="/login?to=/tables"
    )
    assert answer.url.path == "/tables"
    assert "default.orders" in answer.text


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example/", "/\\evil.example", ""])
def test_the_login_leads_nowhere_else(guarded: Browser, to: str) -> None:
    answer = guarded.send("/login", {"token": WRITER, "to": to})
    assert (answer.status_code, answer.url.path) == (200, "/")
    assert answer.url.host == "127.0.0.1"


def test_a_wrong_token_is_told_and_never_shown(guarded: Browser) -> None:
    answer = guarded.log_in("a token that is not one")
    assert answer.status_code == 401
    assert "isn&#39;t one of this server" in answer.text
    assert "a token that is not one" not in answer.text
    assert guarded.get("/").url.path == "/login"


def test_who_logs_out_has_to_log_in_again(guarded: Browser) -> None:
    guarded.log_in(READER)
    assert guarded.get("/").url.path == "/"
    cookie = guarded.http.cookies["txlake_console"]
    assert guarded.send("/logout", {}, page="/").url.path == "/login"
    guarded.http.cookies.set("txlake_console", cookie)
    assert guarded.get("/").url.path == "/login"  # the cookie means nothing any more


def test_a_login_is_another_cookie_than_before(guarded: Browser) -> None:
    guarded.get("/login")
    before = guarded.http.cookies["txlake_console"]
    guarded.log_in(WRITER)
    assert guarded.http.cookies["txlake_console"] != before


def test_the_cookie_is_not_for_scripts_nor_other_sites(guarded: Browser) -> None:
    told = guarded.get("/login").headers["set-cookie"]
    assert "HttpOnly" in told
    assert "SameSite=lax" in told


def test_a_login_ends_when_its_token_does_and_after_half_a_day() -> None:
    now = [0]
    expires = datetime.datetime.fromtimestamp(3_600, datetime.UTC)
    tokens = Tokens([Token(token=WRITER, name="ann", expires=expires), TOKENS[1]])
    visitors = Visitors(tokens, lambda: now[0])
    ann, rob = visitors.login(WRITER), visitors.login(READER)
    assert visitors.visitor(ann).may_change
    assert visitors.visitor(rob).caller is not None
    assert not visitors.visitor(rob).may_change
    now[0] = 3_600_000
    assert visitors.visitor(ann).caller is None
    assert visitors.visitor(rob).caller is not None
    now[0] = 13 * 3_600_000
    assert visitors.visitor(rob).caller is None


def test_no_more_logins_are_kept_than_a_thousand() -> None:
    visitors = Visitors(Tokens(TOKENS), lambda: 0)
    first, *others = [visitors.login(READER) for _ in range(1_001)]
    assert visitors.visitor(first).caller is None
    assert all(visitors.visitor(one).caller is not None for one in others)


# Forms


def _open_transaction(lake: PlainLake) -> int:
    session = lake.another()
    lake.sql("BEGIN; UPDATE orders SET pieces = 0 WHERE id = 1", session)
    return session.number()


def test_only_who_may_change_the_lake_kills(lake: PlainLake) -> None:
    number = str(_open_transaction(lake))
    with Browser(lake.engine) as anybody:
        answer = anybody.http.post("/kill", data={"session": number})
        assert answer.status_code == 403  # no proof at all
        csrf = _csrf_of(anybody)
        answer = anybody.http.post("/kill", data={"session": number, "csrf": csrf})
        assert answer.status_code == 403
        assert "--token-file" in answer.text
    with Browser(lake.engine, TOKENS) as reader:
        reader.log_in(READER)
        assert "Kill" not in reader.page("/")
        answer = reader.send("/kill", {"session": number}, page="/")
        assert answer.status_code == 403
        assert "read-only" in answer.text
    assert lake.sql("SELECT * FROM txlake.transactions")


def _csrf_of(browser: Browser) -> str:
    """Of a browser that has no form to send: what another one with its cookie would be told."""
    browser.get("/")
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/login").text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("form", list(FORMS), ids=lambda one: one.path)
@pytest.mark.parametrize("csrf", ["", "0" * 64, "ü"])
def test_a_form_without_its_proof_does_nothing(writer: Browser, form: object, csrf: str) -> None:
    path = form.path.replace("{name}", "default.orders")  # type: ignore[attr-defined]
    answer = writer.http.post(path, data={"csrf": csrf, "session": "1", "version": "0"})
    assert answer.status_code == 403
    assert "wasn&#39;t sent from a page" in answer.text


def test_another_browsers_proof_is_none(lake: PlainLake, writer: Browser) -> None:
    with Browser(lake.engine, TOKENS) as other:
        proof = _csrf_of(other)
    assert writer.http.post("/kill", data={"csrf": proof, "session": "1"}).status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:81"])
def test_a_form_from_another_site_does_nothing(
    lake: PlainLake, writer: Browser, origin: str
) -> None:
    number = str(_open_transaction(lake))
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', writer.page("/"))
    assert csrf is not None
    fields = {"csrf": csrf[1], "session": number}
    answer = writer.http.post("/kill", data=fields, headers={"origin": origin})
    assert answer.status_code == 403
    same = writer.http.post("/kill", data=fields, headers={"origin": "http://127.0.0.1"})
    assert same.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "[", "127.0.0.1.evil.example"])
def test_a_name_that_is_not_this_hosts_is_refused(browser: Browser, host: str) -> None:
    for path in ("/", "/login"):
        assert browser.http.get(path, headers={"host": host}).status_code == 421
    assert browser.http.post("/kill", headers={"host": host}).status_code == 421


def test_a_console_for_others_has_any_name(lake: PlainLake) -> None:
    with Browser(lake.engine, TOKENS, host="0.0.0.0") as browser:
        answer = browser.http.get("/login", headers={"host": "console.example"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x" * 70_000, "larger than"),
        (b"\xff\xfe", "fields of a form"),
        ("&".join(f"a{n}=1" for n in range(100)).encode(), "fields of a form"),
    ],
)
def test_what_is_no_form_is_refused(writer: Browser, content: bytes, says: str) -> None:
    for path in ("/kill", "/login", "/logout"):
        answer = writer.http.post(path, content=content)
        assert (answer.status_code, says in answer.text) == (400, True), path


# Answers


@pytest.mark.parametrize("path", [*PLAIN_PAGES, "/nothing", "/login", "/static/console.css"])
def test_every_answer_says_what_a_browser_may_do(browser: Browser, path: str) -> None:
    headers = browser.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", [*PLAIN_PAGES, "/login", "/nothing"])
def test_no_page_has_a_script_or_a_style_of_its_own(browser: Browser, path: str) -> None:
    text = browser.get(path).text
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text) is None
    assert re.search(r"(src|href)=\"(?!/|#)", text) is None  # nothing of another host


def test_what_a_table_holds_is_no_markup(browser: Browser) -> None:
    text = browser.page("/tables/default.orders")
    assert "<b>eve" not in text
    assert "&lt;b&gt;eve" in text


def test_a_page_that_there_is_not(browser: Browser) -> None:
    assert browser.get("/nothing").status_code == 404
    assert browser.http.post("/history").status_code == 405
    assert browser.http.put("/").status_code == 405


def test_more_at_once_than_it_takes_is_told(lake: PlainLake) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(visit: PageRequest) -> dict[str, object]:
        begun.release()
        assert go_on.wait(30)
        return {"message": "done"}

    section = Section(pages=[Page("/slow", "problem.html", slow)])
    limits = replace(LIMITS, workers=1, waiting_max=0)
    with Browser(lake.engine, limits=limits, sections=[section]) as browser:
        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(browser.get("/slow").status_code))
        thread.start()
        assert begun.acquire(timeout=30)
        assert browser.get("/now").status_code == 503
        go_on.set()
        thread.join(30)
        assert answers == [200]
        assert browser.get("/now").status_code == 200


def test_a_page_that_takes_too_long_is_not_waited_for(lake: PlainLake) -> None:
    go_on = threading.Event()

    def slow(visit: PageRequest) -> dict[str, object]:
        go_on.wait(30)
        return {"message": "done"}

    section = Section(pages=[Page("/slow", "problem.html", slow)])
    with Browser(lake.engine, limits=replace(LIMITS, request_s=0.1), sections=[section]) as browser:
        answer = browser.get("/slow")
        go_on.set()
        assert answer.status_code == 503
        assert "may still happen" in answer.text


def test_a_page_that_fails_says_nothing_of_why(
    lake: PlainLake, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(visit: PageRequest) -> dict[str, object]:
        raise RuntimeError("the password is swordfish")

    with Browser(
        lake.engine, sections=[Section(pages=[Page("/broken", "now.html", broken)])]
    ) as browser:
        answer = browser.get("/broken")
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert "swordfish" in caplog.text


def test_the_menu_leads_to_its_pages(browser: Browser) -> None:
    text = browser.page("/")
    for page in PAGES:
        if page.title is not None:
            assert f'href="{page.path}"' in text
            assert 'aria-current="page"' in browser.page(page.path)
