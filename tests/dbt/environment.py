"""dbt's environment, .cache/dbt-spark, with the adapter of this repository."""

from __future__ import annotations

import os
from pathlib import Path

from tests.pages import ROOT

# Where another environment with dbt is.
VARIABLE = "TXLAKE_TEST_DBT"
PYTHON = Path(os.environ.get(VARIABLE, ROOT / ".cache" / "dbt-spark" / "bin" / "python"))
ADAPTER = ROOT / "adapters" / "dbt-txlake"


def environment() -> dict[str, str]:
    """Return the variables of a process of dbt."""
    places = (ROOT / "src", ROOT, ADAPTER)
    return {
        "PYTHONPATH": os.pathsep.join(str(place) for place in places),
        "DO_NOT_TRACK": "1",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }
