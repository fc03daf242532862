"""A short soak of maintenance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.maintained import soak


@pytest.mark.broad
@pytest.mark.timeout(300)
@pytest.mark.no_interop("the soak audits its tables itself")
def test_maintenance_aborts_no_writer_and_loses_nothing(tmp_path: Path) -> None:
    assert soak(tmp_path / "lake", seconds=20, writers=4) == []
