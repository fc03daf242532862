"""A real browser: Debian's Chromium without a window, driven by its own driver."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from selenium import webdriver
from selenium.webdriver.chrome.webdriver import WebDriver
from starlette.types import ASGIApp

from tests.peers import need

_BROWSER, _DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WIDE, NARROW = (1280, 900), (360, 740)
DEADLINE_S = 30


@contextmanager
def chromium(folder: Path, *, dark: bool = False) -> Iterator[WebDriver]:
    """A browser with a new profile; the test is skipped where there is none."""
    need("chromium", found=_BROWSER is not None and _DRIVER is not None)
    options = webdriver.ChromeOptions()
    assert _BROWSER is not None
    options.binary_location = _BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--hide-scrollbars", "--disable-dev-shm-usage", f"--user-data-dir={folder}"),
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(_DRIVER))
    try:
        driver.set_page_load_timeout(DEADLINE_S)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield driver
    finally:
        driver.quit()


def size(driver: WebDriver, width: int, height: int) -> None:
    """The size of what is seen of a page, whatever the window's least size is."""
    seen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", seen)


@contextmanager
def listening(app: ASGIApp) -> Iterator[str]:
    """Answers at an address of this host."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()  # who comes before the server accepts waits
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="on", log_level="warning", access_log=False)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)
