"""What Airflow knows of txlake: the connection type `txlake`, whose hook is in `hook`.

Airflow finds `provider_info` by its entry point, while it is still being imported itself; so
nothing here imports it.
"""

from __future__ import annotations

from typing import Any


def provider_info() -> dict[str, Any]:
    """Return what Airflow asks a provider package for: the connection type and its hook."""
    return {
        "package-name": "txlake",
        "name": "txlake",
        "description": "Transactions on Delta Lake tables",
        "connection-types": [
            {"connection-type": "txlake", "hook-class-name": "txlake.airflow.hook.TxlakeHook"}
        ],
    }
