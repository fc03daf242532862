"""SQLAlchemy's own suite for dialects: types."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sqlalchemy.suite import run


@pytest.mark.broad
@pytest.mark.no_interop("the suite drops its tables")
def test_the_dialect_passes(tmp_path: Path) -> None:
    assert run("types", tmp_path)["passed"] > 120
