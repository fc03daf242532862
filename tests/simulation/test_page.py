"""The simulator's page in a real browser: its slider, its keys, and how it looks when narrow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.chromium import DEADLINE_S, NARROW, WIDE, chromium, listening, size
from tests.console.lakes import PlainLake
from tests.simulation.replay import replay
from tests.simulation.replay_cache import ReplayCache, ReplayWorker
from tests.simulation.show import PATH, Simulator, section
from txlake.console.app import application
from txlake.server.tokens import Tokens

pytestmark = pytest.mark.peer("chromium")
SEED = 32  # a short run


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    sections = [section(Simulator(ReplayCache(replay)), ReplayWorker())]
    with (
        PlainLake(tmp_path_factory.mktemp("lake") / "warehouse") as lake,
        listening(application(lake.engine, Tokens(), sections=sections)) as address,
    ):
        yield f"{address}{PATH}?seed={SEED}"


def wait_for_step(driver: WebDriver, step: int) -> None:
    """Wait until the page shows a step."""
    WebDriverWait(driver, DEADLINE_S).until(
        lambda _: driver.title.startswith(f"Seed {SEED}, step {step}")
    )


def press(driver: WebDriver, selector: str, *keys: str) -> None:
    driver.find_element(By.CSS_SELECTOR, selector).send_keys(*keys)


def test_arrow_keys_go_one_step_on_and_back(driver: WebDriver, url: str) -> None:
    driver.get(f"{url}&step=5")
    press(driver, "body", Keys.ARROW_RIGHT)
    wait_for_step(driver, 6)
    press(driver, "body", Keys.ARROW_LEFT)
    wait_for_step(driver, 5)
    press(driver, "body", Keys.ARROW_LEFT)
    wait_for_step(driver, 4)
    driver.get(f"{url}&step=0")
    press(driver, "body", Keys.ARROW_LEFT)  # there is no step before
    press(driver, "body", Keys.ARROW_RIGHT)
    wait_for_step(driver, 1)


def test_the_keys_of_a_field_are_the_fields_own(driver: WebDriver, url: str) -> None:
    driver.get(f"{url}&step=5")
    press(driver, "input[name=seed]", Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    press(driver, "select[name=add]", Keys.ARROW_RIGHT)
    wait_for_step(driver, 5)
    press(driver, "body", Keys.ARROW_RIGHT)
    wait_for_step(driver, 6)


def test_the_slider_says_its_step_and_goes_there(driver: WebDriver, url: str) -> None:
    driver.get(f"{url}&step=5&fault=3:SLOW")
    press(driver, "#steps input[type=range]", Keys.ARROW_RIGHT)
    wait_for_step(driver, 6)
    assert driver.find_element(By.CSS_SELECTOR, "#steps output").text == "6"
    assert "fault=3" in driver.current_url


@pytest.mark.parametrize("screen", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_fits_the_window(driver: WebDriver, url: str, screen: tuple[int, int]) -> None:
    size(driver, *screen)
    driver.get(f"{url}&step=12")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= screen[0]
    assert driver.get_log("browser") == []  # type: ignore[no-untyped-call]
