"""Azure's accounts, as the hosts of URLs name them."""

from __future__ import annotations

import pytest

from txlake.azure import account_options

ACCOUNT = {"azure_storage_account_name": "acc"}
FABRIC = {"azure_storage_account_name": "onelake", "azure_use_fabric_endpoint": "true"}


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("", {}),
        ("acc", ACCOUNT),
        ("acc.dfs.core.windows.net", ACCOUNT),
        ("acc.blob.core.windows.net", ACCOUNT),
        ("onelake.dfs.fabric.microsoft.com", FABRIC),
        (
            "acc.dfs.core.chinacloudapi.cn",
            {**ACCOUNT, "azure_endpoint": "https://acc.blob.core.chinacloudapi.cn"},
        ),
    ],
)
def test_account_options(host: str, options: dict[str, str]) -> None:
    assert account_options(host) == options
