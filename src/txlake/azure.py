"""What the host in an `abfss` URL says of the store's account, for the driver and Spark's tasks.

It imports nothing.
"""

from __future__ import annotations


def account_options(host: str) -> dict[str, str]:
    """What a host says to obstore: `account.dfs.core.windows.net`, Fabric's, or another."""
    if not host:
        return {}
    account, _, domain = host.partition(".")
    options = {"azure_storage_account_name": account}
    if domain == "dfs.fabric.microsoft.com":
        options["azure_use_fabric_endpoint"] = "true"
    elif domain not in {"", "dfs.core.windows.net", "blob.core.windows.net"}:
        options["azure_endpoint"] = f"https://{account}.{domain.replace('dfs.', 'blob.', 1)}"
    return options
