"""Tables in this process's memory (`memory://`): Spark's tasks work on copies of their files.

Owns the copies, in a temporary folder that is removed when the process ends. The store remains the
source of truth. Files of all other tables are directly accessible to tasks.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession

from txlake.errors import CorruptTable, InvalidRequest
from txlake.local.memory_tables import _SCHEME, _on_disk
from txlake.ports import Store


def task_url(spark: SparkSession, store: Store, url: str) -> str:
    """Return the encoded URL under which tasks read a file of the table.

    It is `url` itself, but for a table in memory: its file is copied to disk if it isn't there.
    Raises InvalidRequest if Spark runs on other machines, or the file belongs to another table;
    CorruptTable if the store lacks it.
    """
    if not url.startswith(_SCHEME):
        return url
    check_reachable(spark, store)
    if not url.startswith(f"{store.url}/"):
        raise InvalidRequest(
            f"{store.url}: its file {url} is another table's; tables in memory hold their files "
            "themselves: make a DEEP CLONE"
        )
    path = unquote(url[len(store.url) + 1 :])
    copy = _on_disk(store.url) / path
    if not copy.exists():
        try:
            data = store.get(path)
        except FileNotFoundError as error:
            raise CorruptTable(f"{store.url}: data file {path} is gone") from error
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return _encoded(copy)


def check_reachable(spark: SparkSession, store: Store) -> None:
    """Raise InvalidRequest if the table is in memory and Spark runs on other machines."""
    if not store.url.startswith(_SCHEME):
        return
    master = spark.conf.get("spark.master", "") or ""
    if not master.startswith("local"):
        raise InvalidRequest(
            f"{store.url} is in the memory of this process, which Spark's tasks at {master!r} "
            "can't reach; use a folder or a bucket"
        )


def _encoded(path: Path) -> str:
    return "file://" + quote(str(path), safe="/=:@,")
