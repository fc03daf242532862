"""Translate the Hadoop settings of `DeltaTable.forPath` to options of txlake's stores."""

from __future__ import annotations

import re
from collections.abc import Mapping

from txlake.lake.tables.arguments import require_type
from txlake.lake.tables.errors import ArgumentValueRefused

_HDFS_PREFIX = "dfs."
_PREFIXES = ("fs.", _HDFS_PREFIX)
_S3 = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint",
    "endpoint.region": "aws_region",
}
_AZURE_KEY = re.compile(r"fs\.azure\.account\.key(?:\.([^.]+)\..*)?")


def storage_options(hadoop_conf: Mapping[str, str]) -> dict[str, str]:
    """Return the store options that Hadoop settings stand for; other settings are Spark's alone.

    Raises a ValueError for a key that isn't a file system's, or keys and values that aren't text.
    """
    options: dict[str, str] = {}
    for key, value in require_type(hadoop_conf, dict, "hadoopConf").items():
        require_type(key, str, f"All hadoopConf keys including {key}")
        require_type(value, str, f"All hadoopConf values including {value}")
        if not key.startswith(_PREFIXES):
            raise ArgumentValueRefused(
                "DeltaTable.forPath takes only Hadoop settings that start with "
                f"{' or '.join(_PREFIXES)}, found {key!r}; set it on the Spark session"
            )
        options.update(_option(key, value))
    hdfs_settings = {
        key: value for key, value in hadoop_conf.items() if key.startswith(_HDFS_PREFIX)
    }
    if hdfs_settings:
        from txlake.storage.hdfs.name_nodes import hdfs_options

        options.update(hdfs_options(hdfs_settings))
    return options


def _option(key: str, value: str) -> dict[str, str]:
    """Return the store options that one setting stands for.

    {} for settings of Spark's alone, and for HDFS's (`dfs.`), which `storage_options` translates.
    """
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
