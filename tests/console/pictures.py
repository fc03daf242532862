"""The documents' pictures of the console: `make console-pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.chromium import DEADLINE_S, WIDE, chromium, listening, size
from tests.console.lakes import PlainLake
from tests.pages import ROOT
from txlake.console.app import application
from txlake.console.playground import Playgrounds
from txlake.console.playground_pages import PATH
from txlake.console.serving import playground_section
from txlake.errors import Conflict
from txlake.server.tokens import Tokens


def book(lake: PlainLake) -> None:
    """Orders that take from stock, writers of other rows beside each other, and one that loses."""
    lake.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.orders (id INT, item STRING, pieces INT); "
        "CREATE TABLE shop.stock (item STRING, pieces INT); "
        "CREATE TABLE shop.bills (id INT, sum INT)"
    )
    lake.sql("INSERT INTO shop.stock VALUES ('apple', 500), ('pear', 300), ('plum', 700)")
    for number, item in enumerate(("apple", "pear", "plum", "apple", "plum", "pear", "apple")):
        lake.sql(
            f"BEGIN; INSERT INTO shop.orders VALUES ({number}, '{item}', {number + 1}); "
            f"UPDATE shop.stock SET pieces = pieces - {number + 1} WHERE item = '{item}'; COMMIT"
        )
        if number % 2:
            lake.sql(
                f"BEGIN; INSERT INTO shop.bills VALUES ({number}, {10 * number}); "
                f"UPDATE shop.orders SET pieces = 0 WHERE id = {number}; COMMIT"
            )
    loser, winner = lake.another(), lake.another()
    lake.sql("BEGIN; UPDATE shop.stock SET pieces = pieces - 9 WHERE item = 'plum'", loser)
    lake.sql("UPDATE shop.stock SET pieces = pieces - 2 WHERE item = 'apple'", winner)
    lake.sql("UPDATE shop.stock SET pieces = pieces - 5 WHERE item = 'plum'", winner)
    try:
        lake.sql("COMMIT", loser)
    except Conflict:
        return
    raise AssertionError("both changed the plums")


def pictures(driver: WebDriver, url: str, folder: Path) -> list[Path]:
    """Take them."""
    size(driver, WIDE[0], 620)
    made = []
    for name, path in (("history", "/history"), ("conflict", "/conflicts/1")):
        driver.get(url + path)
        made.append(folder / f"console-{name}.png")
        driver.save_screenshot(str(made[-1]))
    driver.get(url + PATH)
    driver.find_element(By.CSS_SELECTOR, "option[value='overdraft']").click()
    wait = WebDriverWait(driver, DEADLINE_S, ignored_exceptions=[StaleElementReferenceException])
    for button, told in (("play-begin", "Step 1 of"), ("play-auto", "as documented")):
        driver.find_element(By.ID, button).click()
        wait.until(
            lambda seen, text=told: text in seen.find_element(By.CSS_SELECTOR, ".play-outcome").text  # type: ignore[misc]
        )
    size(driver, WIDE[0], 1100)
    made.append(folder / "console-playground.png")
    driver.save_screenshot(str(made[-1]))
    return made


def main() -> int:
    """Put them into docs/."""
    with tempfile.TemporaryDirectory() as folder, PlainLake(Path(folder) / "warehouse") as lake:
        book(lake)
        app = application(lake.engine, Tokens(), sections=[playground_section(Playgrounds())])
        with listening(app) as url, chromium(Path(folder) / "profile") as driver:
            pictures(driver, url, ROOT / "docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
