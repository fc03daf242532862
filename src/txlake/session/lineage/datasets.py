"""The names of tables as OpenLineage's datasets.

Source: OpenLineage's naming of datasets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from txlake.session.engine import Engine, Handle

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def dataset_of_table(engine: Engine, handle: Handle) -> tuple[str, str]:
    """Return the namespace and the name of a table, which on a branch is a dataset of its own."""
    branch = handle.branch or engine.branch
    namespace, name = dataset_of(handle.store.url)
    return namespace, name if branch is None else f"{name}@branch:{branch.name}"


def dataset_of(url: str) -> tuple[str, str]:
    """Return the namespace and the name of a folder as a dataset, as OpenLineage's naming has them:
    a local folder's path in `file`, a key in its bucket, a path in its file system.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = unquote(parts.path).rstrip("/")
    if scheme == "file":
        return "file", path
    is_path = scheme in {"hdfs", "viewfs"}
    return f"{scheme}://{parts.netloc}", path if is_path else path.lstrip("/")
