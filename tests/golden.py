"""The golden tables of other engines: where they are, and what their manifest says of them."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "golden"
ARCHIVE = FOLDER / "tables.tar.gz"


def golden_tables() -> list[dict[str, object]]:
    """The manifest's tables, for `pytest.mark.parametrize`; none where the golden tables aren't.

    Each `path` is relative to the folder that the fixture `golden` gives.
    """
    return cast("list[dict[str, object]]", _manifest().get("tables", []))


@cache
def _manifest() -> dict[str, object]:
    manifest = FOLDER / "manifest.json"
    if not manifest.exists():
        return {}
    return cast("dict[str, object]", json.loads(manifest.read_text(encoding="utf-8")))


@cache
def render_rows() -> ModuleType:
    """The canonical renderer that stands beside the manifest: `rows_of`, `digest`."""
    script = FOLDER / "render_rows.py"
    spec = importlib.util.spec_from_file_location("golden_render_rows", script)
    if spec is None or spec.loader is None or not script.exists():
        pytest.skip(f"no golden tables: {script} isn't there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
