"""A log in memory with a clock that tests set, and short ways to write actions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.commit.table_log import TableLog
from txlake.errors import Unavailable
from txlake.ports import PutOutcome, Store, StoredObject
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    Metadata,
    Protocol,
    Remove,
    encode_actions,
)
from txlake.protocol.file_names import commit_path
from txlake.settings import Settings

HOUR = 3_600_000
DAY = 24 * HOUR
START = 20_000 * DAY  # a midnight

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "p", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)


class Clock:
    """`ports.System` that stands still until a test moves it."""

    def __init__(self, now_ms: int = START) -> None:
        self.time_ms = now_ms
        self._ids = 0

    def now_ms(self) -> int:
        return self.time_ms

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-0000-0000-{self._ids:012d}"

    def random(self) -> float:
        return 0.5

    def wait_ms(self, duration_ms: float) -> None:
        self.time_ms += int(duration_ms)

    def monotonic_ms(self) -> float:
        return float(self.time_ms)


class FakeStore:
    """`ports.Store` in a dictionary; times come from the clock, and requests are counted."""

    def __init__(self, clock: Clock, url: str = "memory://test") -> None:
        self._clock = clock
        self._url = url
        self.files: dict[str, tuple[bytes, int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.failing: set[str] = set()  # paths; whether they are there is always told
        self.sweeps: list[tuple[str, int]] = []

    @property
    def url(self) -> str:
        return self._url

    @property
    def excludes_late_writes(self) -> bool:
        return True

    def get(self, path: str) -> bytes:
        self._request("get", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        return self.get(path)[offset : offset + length]

    def head(self, path: str) -> StoredObject | None:
        self._request("head", path)
        return self._object(path) if path in self.files else None

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        self._request("list", prefix)
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        for path in sorted(self.files):
            if before is not None and path >= before:
                return
            if path.startswith(folder) and path > (start_after or ""):
                yield self._object(path)

    def put(self, path: str, data: bytes) -> None:
        self._request("put", path)
        self.files[path] = (data, self._clock.now_ms())

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._request("put_if_absent", path)
        if path in self.files:
            return PutOutcome.EXISTS
        self.put(path, data)
        return PutOutcome.CREATED

    def put_unsynced(self, path: str, data: bytes) -> None:
        self.put_if_absent(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._request("delete", path)
            self.files.pop(path, None)

    def sweep(self, prefix: str, before_ms: int) -> None:
        self._request("sweep", prefix)
        self.sweeps.append((prefix, before_ms))

    def ensure_safe(self) -> None:
        self._request("ensure_safe", "")

    def at(self, path: str) -> Store:
        raise NotImplementedError

    def _object(self, path: str) -> StoredObject:
        data, time = self.files[path]
        return StoredObject(path, len(data), time)

    def _request(self, kind: str, path: str) -> None:
        self.requests.append((kind, path))
        if path in self.failing and kind != "head":
            raise Unavailable(f"{path}: the test says no")


class LogOf:
    """A table log over a fake store, and commits written as another writer would."""

    def __init__(self, settings: Settings | None = None, url: str = "memory://test") -> None:
        self.clock = Clock()
        self.store = FakeStore(self.clock, url)
        self.settings = settings or Settings()

    def open(self) -> TableLog:
        """A fresh log that knows nothing yet."""
        return TableLog(self.store, self.clock, self.settings, name="t")

    def create(
        self,
        *actions: Action,
        configuration: dict[str, str] | None = None,
        protocol: Protocol = PROTOCOL,
        partition_columns: Sequence[str] = (),
    ) -> LogOf:
        """Version 0 with protocol and metadata before these actions."""
        return self.commit(0, protocol, metadata(configuration, partition_columns), *actions)

    def commit(self, version: int, *actions: Action, after_ms: int = 1_000) -> LogOf:
        """A commit, a second after the one before."""
        self.clock.time_ms += after_ms
        info = CommitInfo({"timestamp": self.clock.time_ms, "operation": "WRITE"})
        with_info = actions if any(isinstance(a, CommitInfo) for a in actions) else (info, *actions)
        self.store.put(commit_path(version), encode_actions(with_info))
        return self

    def remove_file(self, *paths: str) -> LogOf:
        """Take files away, as an accident would."""
        for path in paths:
            del self.store.files[path]
        return self

    @property
    def paths(self) -> list[str]:
        """All files there are."""
        return sorted(self.store.files)


def metadata(
    configuration: dict[str, str] | None = None, partition_columns: Sequence[str] = ()
) -> Metadata:
    """The metadata of a table with columns id and p."""
    return Metadata(
        id="table-id",
        schema_string=SCHEMA,
        partition_columns=tuple(partition_columns),
        configuration=configuration or {},
        created_time=1,
    )


def add(path: str, *, size: int = 10, vector: DeletionVector | None = None, **more: object) -> Add:
    """An add of that path."""
    return Add(
        path=path,
        partition_values={},
        size=size,
        modification_time=1,
        data_change=True,
        deletion_vector=vector,
        **more,  # type: ignore[arg-type]
    )


def remove(path: str, at_ms: int = START, vector: DeletionVector | None = None) -> Remove:
    """A remove of that path at a time."""
    return Remove(
        path=path, data_change=True, deletion_timestamp=at_ms, deletion_vector=vector, size=10
    )


def vector(name: str = "ab^-aqEH.-t@S}K{vb[*k^", offset: int | None = 1) -> DeletionVector:
    """A descriptor of a vector in a file."""
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=offset, size_in_bytes=36, cardinality=2
    )


def with_damaged_stats(checkpoint: bytes, row_groups: Collection[int] | None = None) -> bytes:
    """The Parquet file with nonsense where the statistics of the adds stand, of all row groups."""
    metadata = pq.ParquetFile(pa.BufferReader(checkpoint)).metadata
    for row_group in range(metadata.num_row_groups) if row_groups is None else row_groups:
        group = metadata.row_group(row_group)
        columns = map(group.column, range(group.num_columns))
        column = next(item for item in columns if item.path_in_schema == "add.stats")
        start = column.dictionary_page_offset or column.data_page_offset
        end = start + column.total_compressed_size
        checkpoint = checkpoint[:start] + b"\xff" * (end - start) + checkpoint[end:]
    return checkpoint
