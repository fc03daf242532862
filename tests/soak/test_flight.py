"""A short soak of Flight SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.flight import soak


@pytest.mark.broad
@pytest.mark.timeout(900)
@pytest.mark.no_interop("the soak audits its tables itself")
def test_clients_that_read_write_and_vanish(tmp_path: Path) -> None:
    assert soak(tmp_path / "lake", seconds=15, clients=8) == []
