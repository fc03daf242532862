"""Hadoop's settings of HDFS, `dfs.`, as options of the store."""

from __future__ import annotations

import re
from collections.abc import Mapping

from txlake.storage.hdfs.webhdfs import ENDPOINT

# The address of the name node, or of one of a service's (`.service.node` follows).
_NAME_NODE = re.compile(r"dfs\.namenode\.(https?)-address(?:\..*)?")


def hdfs_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options for Hadoop's settings.

    Only the name nodes' HTTP addresses count (`dfs.namenode.http-address` and the like): they
    become `webhdfs_endpoint`. Without one the result is empty.
    """
    endpoints = [
        f"{node[1]}://{address}"
        for key, address in settings.items()
        if (node := _NAME_NODE.fullmatch(key)) is not None
    ]
    return {ENDPOINT: ",".join(endpoints)} if endpoints else {}
