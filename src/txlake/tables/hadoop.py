"""Hadoop's settings of file systems, as `DeltaTable.forPath` takes them, in our stores' words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from txlake.tables.arguments import checked
from txlake.tables.errors import ArgumentValueRefused

_PREFIXES = ("fs.", "dfs.")
_S3 = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint",
    "endpoint.region": "aws_region",
}
# Of one name node, or of one of a service's: `.service.node` follows.
_NAME_NODE = re.compile(r"dfs\.namenode\.(https?)-address(?:\..*)?")
_NAME_NODES = "webhdfs_endpoint"
_AZURE_KEY = re.compile(r"fs\.azure\.account\.key(?:\.([^.]+)\..*)?")


def storage_options(hadoop_conf: Mapping[str, str]) -> dict[str, str]:
    """The options of our stores that these settings stand for; other settings are Spark's alone.

    Raises a ValueError for a key that is no file system's, or keys and values that aren't text.
    """
    found: dict[str, str] = {}
    name_nodes: list[str] = []
    for key, value in checked(hadoop_conf, dict, "hadoopConf").items():
        checked(key, str, f"All hadoopConf keys including {key}")
        checked(value, str, f"All hadoopConf values including {value}")
        if not key.startswith(_PREFIXES):
            raise ArgumentValueRefused(
                "DeltaTable.forPath takes only Hadoop settings that start with "
                f"{' or '.join(_PREFIXES)}, found {key!r}; set it on the Spark session"
            )
        if (node := _NAME_NODE.fullmatch(key)) is not None:
            name_nodes.append(f"{node[1]}://{value}")
        found.update(_option(key, value))
    if name_nodes:
        found[_NAME_NODES] = ",".join(name_nodes)
    return found


def _option(key: str, value: str) -> dict[str, str]:
    azure = _AZURE_KEY.fullmatch(key)
    if azure is not None:
        account = {} if azure[1] is None else {"azure_storage_account_name": azure[1]}
        return {"azure_storage_account_key": value, **account}
    if not key.startswith("fs.s3a."):
        return {}
    name = key.removeprefix("fs.s3a.")
    if name in _S3:
        return {_S3[name]: value}
    if name == "path.style.access":
        return {"aws_virtual_hosted_style_request": str(value.lower() != "true").lower()}
    if name == "connection.ssl.enabled":
        return {"aws_allow_http": str(value.lower() == "false").lower()}
    return {}
