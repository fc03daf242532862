"""The site that `make docs` builds: whole, of this repository alone, and read without a network."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path

import pytest

import txlake
from tests.pages import ROOT

_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preload|icon|manifest)[^>]*"
    r"\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)"
)
_TARGET = re.compile(r"\bhref=[\"']?([^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def test_every_page_is_in_it(site: Path) -> None:
    wanted = {page.stem for page in (ROOT / "docs").glob("*.md")}
    made = {page.stem for page in site.glob("*.html")}
    assert wanted | {"index", "reference", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING"} <= made
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in sorted(wanted) if f": {name}.md" not in navigation] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {
        (path.name, next(filter(None, match.groups())))
        for path in site.rglob("*")
        if path.suffix in (".html", ".css", ".svg")
        for match in _LOADED.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_its_links_lead_to_pages_and_places_in_them(site: Path) -> None:
    pages = {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
    }
    places = {
        name: set(re.findall(r"\bid=[\"']?([^\"'\s>]+)", text)) for name, text in pages.items()
    }
    broken = []
    for name, text in pages.items():
        if name == "404.html":
            continue  # whose links are those of a root
        for target in set(_TARGET.findall(text)):
            path, _, anchor = target.partition("#")
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            page = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            page = page if path else name
            is_place = not anchor or not page.endswith(".html") or anchor in places.get(page, ())
            if not (site / page).exists() or not is_place:
                broken.append((name, target))
    assert broken == []


def test_the_reference_has_all_that_is_exported(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    names = set(txlake.__all__) - {"errors"}  # which have a page of their own
    places = {f"{getattr(txlake, name).__module__}.{name}" for name in names}
    assert [place for place in sorted(places) if f'id="{place}"' not in text] == []
