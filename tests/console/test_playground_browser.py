"""The playground in a real browser: it doesn't jump, and shows what waits without being asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.chromium import DEADLINE_S, NARROW, WIDE, chromium, listening, size
from tests.console.lakes import PlainLake
from txlake.console.app import application
from txlake.console.playground import Playgrounds
from txlake.console.playground_pages import PATH
from txlake.console.serving import playground_section
from txlake.server.tokens import Tokens

pytestmark = pytest.mark.peer("chromium")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    section = playground_section(Playgrounds())
    with (
        PlainLake(tmp_path_factory.mktemp("lake") / "warehouse") as lake,
        listening(application(lake.engine, Tokens(), sections=[section])) as address,
    ):
        yield address + PATH


@pytest.fixture
def page(driver: WebDriver, url: str) -> Iterator[Played]:
    size(driver, *WIDE)
    driver.delete_all_cookies()
    driver.get(url)
    played = Played(driver)
    yield played
    assert driver.execute("getLog", {"type": "browser"})["value"] == []


class Played:
    """The page, and who uses it."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def begin(self, timeline: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, f"option[value='{timeline}']").click()
        self.press("play-begin")
        self.wait_for(".play-outcome", "Step 1 of")

    def press(self, button: str) -> None:
        self.driver.find_element(By.ID, button).click()

    def run(self, session: str, sql: str) -> None:
        self.driver.find_element(By.ID, f"play-sql-{session}").send_keys(sql)
        self.press(f"play-run-{session}")

    def text(self, place: str) -> str:
        # Asked for in one step: the part may be replaced at any moment.
        found = self.driver.execute_script(
            "const found = document.querySelector(arguments[0]); return found && found.innerText",
            place,
        )
        return found or ""

    def wait_for(self, place: str, text: str) -> None:
        WebDriverWait(self.driver, DEADLINE_S).until(lambda _: text in self.text(place))

    def focused(self) -> str:
        return str(self.driver.execute_script("return document.activeElement.id"))


def test_steps_replace_a_part_of_the_page(page: Played) -> None:
    page.driver.execute_script("window.kept = 'kept'")
    page.begin("fabric-alter-blocks")
    page.driver.find_element(By.ID, "play-sql-T3").send_keys("SELECT 1")
    for number in range(2, 5):
        page.press("play-step")
        page.wait_for(".play-outcome", f"Step {number} of")
        assert page.focused() == "play-step"
    assert "waits for Sch-S on stock, after T1" in page.text(".play-grid")
    page.press("play-auto")
    page.wait_for(".play-outcome", "as documented")
    typed = page.driver.find_element(By.ID, "play-sql-T3")
    assert typed.get_property("value") == "SELECT 1"
    typed.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait_for(".play-grid", "yours")
    assert page.focused() == "play-sql-T3"
    page.press("play-level-snapshot")
    page.wait_for("[aria-pressed=true]", "Snapshot")
    page.wait_for(".play-outcome", "Step 1 of")
    assert page.driver.execute_script("return window.kept") == "kept"


def test_what_waited_in_vain_is_shown_by_itself(page: Played) -> None:
    page.begin("fabric-lock-timeout")
    page.run("T1", "BEGIN; ALTER TABLE stock ADD COLUMN shelf INT")
    page.wait_for("#play-T1", "in a transaction")
    page.run("T2", "SET LOCK_TIMEOUT 500; SELECT * FROM stock")
    page.wait_for(".play-grid", "LockTimeout")
    page.wait_for("#play-T2", "lost")


def is_said(text: str) -> Callable[[WebDriver], bool]:
    def ask(driver: WebDriver) -> bool:
        return driver.find_element(By.CSS_SELECTOR, ".play-outcome").text == text

    return ask


def test_it_works_without_scripts(page: Played) -> None:
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.driver.refresh()
        wait = WebDriverWait(
            page.driver,
            DEADLINE_S,
            ignored_exceptions=[NoSuchElementException, StaleElementReferenceException],
        )
        texts = [f"Step {number} of 6 is next." for number in range(1, 7)]
        for text in (*texts, "✓ as documented Both commit: they changed different rows."):
            page.press("play-step")
            wait.until(is_said(text))
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("screen", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_fits_the_screen(page: Played, screen: tuple[int, int]) -> None:
    size(page.driver, *screen)
    for timeline in ("fabric-alter-blocks", "hermitage-g-single-two-writers"):
        page.begin(timeline)
        page.press("play-auto")
        page.wait_for(".play-outcome", "as documented")
        across = page.driver.execute_script("return document.documentElement.scrollWidth")
        assert across <= screen[0]
