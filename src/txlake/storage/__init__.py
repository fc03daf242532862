"""Stores: bytes under a root folder, local, in memory, in the cloud or in HDFS, as `ports.Store`.

Owns locations, durability, put-if-absent, and the translation of the libraries' errors. The bytes'
meaning is in `log` and `protocol`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from txlake.ports import Store
from txlake.storage.links import symlink_target
from txlake.storage.local import LocalStore
from txlake.storage.locations import StoreKind, canonical_url, join_url, local_path, locate
from txlake.storage.proof import Proof

__all__ = ["canonical_url", "join_url", "symlink_target", "local_path", "open_store"]


def open_store(
    location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Store:
    """Return the store at a folder or URL. Sends and creates nothing: the folder need not exist.

    Local paths are literal text, relative ones below the current folder. URLs are percent-encoded:
    `file:///folder`, `s3://` (`s3a`), `gs://`, `az://container/`,
    `abfss://container@account.dfs.core.windows.net/`, `hdfs://namenode:8020/` (`webhdfs`,
    `swebhdfs`), and `memory://name`, which is one store for the whole process. `storage_options` go
    to the store's client, see `txlake.storage.objects.cloud_backend` and
    `txlake.storage.hdfs.store.cluster_at`; other stores ignore them.

    Raises:
        InvalidRequest: the location or an option can't be used.
    """
    place = locate(location)
    match place.kind:
        case StoreKind.LOCAL:
            return LocalStore(place, _local_proof(place.folder))
        case StoreKind.HDFS:
            # Imported here: HDFS is rare, and other stores need nothing of it.
            from txlake.storage.hdfs.store import HdfsStore, cluster_at

            return HdfsStore(place, cluster_at(place.base, storage_options or {}))
        case StoreKind.MEMORY | StoreKind.CLOUD:
            # Imported here: Spark's machines need no obstore for tables in folders.
            from txlake.storage.objects import BucketStore, cloud_backend, memory_backend

            if place.kind is StoreKind.MEMORY:
                return BucketStore(place, memory_backend(place.base))
            return BucketStore(place, cloud_backend(place.base, storage_options or {}))


@functools.lru_cache(maxsize=10_000)
def _local_proof(folder: str) -> Proof:
    return Proof()
