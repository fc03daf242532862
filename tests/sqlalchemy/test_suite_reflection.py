"""SQLAlchemy's own suite for dialects: reflection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import need
from tests.sqlalchemy.suite import OLDER, run


@pytest.mark.broad
@pytest.mark.no_interop("the suite drops its tables")
def test_the_dialect_passes(tmp_path: Path) -> None:
    assert run("reflection", tmp_path)["passed"] > 600


@pytest.mark.broad
@pytest.mark.peer("sqlalchemy-2.0")
@pytest.mark.no_interop("the suite drops its tables")
def test_the_dialect_passes_with_the_older_sqlalchemy(tmp_path: Path) -> None:
    need("sqlalchemy-2.0", found=OLDER.exists())
    assert run("reflection", tmp_path, OLDER)["passed"] > 600
