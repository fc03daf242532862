"""The console in a real browser: what is seen, on wide and narrow screens, and by the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.browser import TOKENS, WRITER
from tests.console.chromium import DEADLINE_S, NARROW, WIDE, chromium, listening, size
from tests.console.lakes import PlainLake
from tests.console.pictures import book, pictures
from tests.pages import ROOT
from txlake.console.app import application
from txlake.console.playground import Playgrounds
from txlake.console.serving import playground_section
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.order import Budget
from txlake.server.tokens import Tokens

pytestmark = pytest.mark.peer("chromium")
PATHS = (
    "/",
    "/history",
    "/history/10",
    "/conflicts",
    "/conflicts/1",
    "/tables",
    "/tables/shop.stock",
    "/maintenance",
)
CSS = ROOT / "src/txlake/console/static/console.css"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainLake]:
    """A lake with some history, of which one table was maintained and another one is due."""
    with PlainLake(tmp_path_factory.mktemp("shop") / "warehouse") as lake:
        book(lake)
        for table, budget in (("orders", Budget()), ("stock", Budget(time_ms=0))):
            lake.sql(
                f"ALTER TABLE shop.{table} SET TBLPROPERTIES "
                "('txlake.maintenance.minSmallFiles' = '3')"
            )
            Maintainer(lake.engine, lake.another, budget=budget).run()
        yield lake


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def url(shop: PlainLake) -> Iterator[str]:
    """A console of it that anybody on this host may look at."""
    sections = [playground_section(Playgrounds())]
    with listening(application(shop.engine, Tokens(), sections=sections)) as address:
        yield address


def _complaints(driver: WebDriver) -> list[str]:
    """What the browser says is wrong with pages since it was asked last."""
    found = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [str(one["message"]) for one in found]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("screen", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_page_fits_the_screen_and_the_browser_has_no_complaints(
    driver: WebDriver, url: str, path: str, screen: tuple[int, int]
) -> None:
    size(driver, *screen)
    driver.get(url + path)
    assert driver.find_element(By.TAG_NAME, "h1").is_displayed()
    across = driver.execute_script("return document.documentElement.scrollWidth")
    assert across <= screen[0]
    assert _complaints(driver) == []


def test_the_keyboard_reaches_the_content_and_shows_where_it_is(
    driver: WebDriver, url: str
) -> None:
    size(driver, *WIDE)
    driver.get(f"{url}/history")
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    first = driver.switch_to.active_element
    assert first.text == "Skip to the content"
    assert first.rect["x"] >= 0  # it is seen when it has the focus
    assert first.value_of_css_property("outline-style") == "solid"
    reached = set()
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(driver.switch_to.active_element.get_dom_attribute("href"))
    assert "/tables" in reached
    assert any(link and "/history/" in link for link in reached)


def test_a_dot_leads_to_its_transaction_and_on_to_the_table(driver: WebDriver, url: str) -> None:
    driver.get(f"{url}/history")
    dots = driver.find_elements(By.CSS_SELECTOR, "svg.lanes a")
    dots[0].click()
    assert driver.find_element(By.TAG_NAME, "h1").text.startswith("Instant")
    driver.find_element(By.LINK_TEXT, "The table at this version").click()
    assert "Version" in driver.find_element(By.TAG_NAME, "main").text


def test_now_is_shown_anew_by_itself_until_it_is_paused(
    shop: PlainLake, driver: WebDriver, url: str
) -> None:
    driver.get(url)
    assert driver.find_element(By.ID, "part").text.count("shop.stock") == 0
    session = shop.another()
    shop.sql("BEGIN; UPDATE shop.stock SET pieces = 1 WHERE item = 'pear'", session)
    wait = WebDriverWait(driver, DEADLINE_S)
    wait.until(lambda seen: "shop.stock" in seen.find_element(By.ID, "part").text)
    pause = driver.find_element(By.ID, "pause")
    pause.click()
    assert pause.get_attribute("aria-pressed") == "true"
    shop.sql("ROLLBACK", session)
    pause.click()
    wait.until(lambda seen: "shop.stock" not in seen.find_element(By.ID, "part").text)


def test_who_logs_in_kills_a_session_after_a_confirmation(
    shop: PlainLake, driver: WebDriver
) -> None:
    session = shop.another()
    shop.sql("BEGIN; UPDATE shop.stock SET pieces = 1 WHERE item = 'pear'", session)
    with listening(application(shop.engine, Tokens(TOKENS))) as url:
        driver.get(url)
        driver.find_element(By.ID, "token").send_keys(WRITER, Keys.ENTER)
        wait = WebDriverWait(
            driver, DEADLINE_S, ignored_exceptions=[StaleElementReferenceException]
        )
        wait.until(lambda seen: seen.find_elements(By.LINK_TEXT, "Kill…"))
        driver.get(driver.find_element(By.LINK_TEXT, "Kill…").get_attribute("href") or "")
        assert ("active",) in shop.sql("SELECT state FROM txlake.transactions")
        driver.find_element(By.CSS_SELECTOR, "button.danger").click()
        wait.until(lambda seen: seen.find_element(By.TAG_NAME, "h1").text == "Now")
        assert ("active",) not in shop.sql("SELECT state FROM txlake.transactions")
        assert _complaints(driver) == []


def test_the_documents_pictures_can_be_taken(driver: WebDriver, url: str, tmp_path: Path) -> None:
    taken = pictures(driver, url, tmp_path)
    for one in taken:
        assert one.stat().st_size > 10_000
        assert f"({one.name})" in (ROOT / "docs/console.md").read_text(encoding="utf-8")


# Colours


def _colours(block: str) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(int(text[place : place + 2], 16) / 255 for place in (0, 2, 4))
        for name, text in re.findall(r"--(\w+): #([0-9a-f]{6})", block)
    }


def _luminance(colour: tuple[float, ...]) -> float:
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    )
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_stand_out_from_their_ground(dark: bool) -> None:
    """WCAG 2.2, success criterion 1.4.3: a contrast of at least 4.5 to 1."""
    light, _, rest = CSS.read_text(encoding="utf-8").partition("@media")
    colours = _colours(light) | (_colours(rest.partition("\n")[0]) if dark else {})
    for name in ("text", "quiet", "accent", "warn"):
        for ground in ("ground", "soft"):
            above, below = sorted(
                (_luminance(colours[name]), _luminance(colours[ground])), reverse=True
            )
            assert (above + 0.05) / (below + 0.05) >= 4.5, (name, ground)
