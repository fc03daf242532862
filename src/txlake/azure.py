"""The storage options that an `abfss` URL's host implies, for the driver and Spark's tasks.

Imports nothing.
"""

from __future__ import annotations


def account_options(host: str) -> dict[str, str]:
    """Return obstore's options for a host: `account.dfs.core.windows.net`, Fabric's, or another;
    none for an empty host.
    """
    if not host:
        return {}
    account, _, domain = host.partition(".")
    options = {"azure_storage_account_name": account}
    if domain == "dfs.fabric.microsoft.com":
        options["azure_use_fabric_endpoint"] = "true"
    elif domain not in {"", "dfs.core.windows.net", "blob.core.windows.net"}:
        options["azure_endpoint"] = f"https://{account}.{domain.replace('dfs.', 'blob.', 1)}"
    return options
