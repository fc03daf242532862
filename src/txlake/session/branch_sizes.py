"""How much each branch alone keeps: the files that nothing else in the lake has.

Reads the logs of tables whose versions differ between main and branches, and no others: no data
file, no vector, no listing of data.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from txlake.catalog.names import MAIN, TableEntry
from txlake.errors import TxlakeError
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.file_rows import vector_of
from txlake.session.engine import Engine

_logger = logging.getLogger(__name__)

_State = tuple[tuple[str, ...], int]
"""A version of a table: the branches on the way to the one that committed it, and its number."""


def kept_alone(engine: Engine, of: int | None = None) -> Mapping[int, int | None]:
    """Return for the numbers of branches and tags the bytes of the data files and deletion vectors
    that only each of them keeps, 0 left out; None if a log can't be read.

    With `of`, the number of a branch, it is the only one, and the logs of tables of which it has no
    version for itself aren't read.

    They are of the versions that it began with and has now, and neither main's newest version nor
    any version that another branch or tag began with or has now lists them.
    """
    main = engine.main
    sizes: Counter[int] = Counter()
    unknown: set[int] = set()
    for entries in main.catalog.of_lake().branches.shared_tables():
        try:
            sizes.update(_kept_of_table(main, entries, of))
        except TxlakeError as error:
            _logger.warning("%s: what branches keep is unknown: %s", entries[0].location, error)
            unknown.update(entry.branch for entry in entries if of in {None, entry.branch})
    return {**sizes, **dict.fromkeys(unknown, None)}


def _kept_of_table(
    engine: Engine, entries: Sequence[TableEntry], of: int | None
) -> Mapping[int, int]:
    """Return by branch what it alone keeps of a table, which has `entries` on main and branches; of
    one branch alone with `of`.
    """
    states = {entry.branch: _states(entry) for entry in entries}
    counts = Counter(state for own in states.values() for state in own)
    single = {
        branch
        for branch, own in states.items()
        if branch != MAIN and of in {None, branch} and any(counts[state] == 1 for state in own)
    }
    if not single:
        return {}
    files: dict[_State, Mapping[str, int]] = {}
    for entry in entries:
        for state in states[entry.branch] - files.keys():
            files[state] = dict(_sizes(engine.at_entry(entry).log.snapshot(state[1])))
    holders: Counter[str] = Counter()  # the number of branches, with main, that keep a file
    for own in states.values():
        holders.update(set().union(*(files[state] for state in own)))
    return {
        branch: sum(
            size
            for name, size in _united(files[state] for state in states[branch]).items()
            if holders[name] == 1
        )
        for branch in single
    }


def _united(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sizes of the files of several versions, each file once."""
    return dict(item for part in parts for item in part.items())


def _states(entry: TableEntry) -> set[_State]:
    """Return the versions that a table's branch keeps: the one that it began with, and its newest;
    of main the newest alone.
    """
    assert entry.head is not None, "a table without a version isn't a branch's"
    versions = {entry.head} if entry.base is None else {entry.head, entry.base}
    return {_state(entry, version) for version in versions}


def _state(entry: TableEntry, version: int) -> _State:
    """Return which version it is: the same for all branches that have it from one parent."""
    chain = entry.chain
    while chain and version == chain[-1][1]:
        chain = chain[:-1]
    return tuple(branch_id for branch_id, _ in chain), version


def _sizes(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the names and the sizes in bytes of a version's data files and of their vectors."""
    rows = snapshot.files.columns("path", "size", "deletion_vector")
    for batch in rows.to_batches():
        paths, sizes = batch.column("path").to_pylist(), batch.column("size").to_pylist()
        for path, size in zip(paths, sizes, strict=True):
            yield canonical_path(path), size
        for value in batch.column("deletion_vector").to_pylist():
            if value is not None and vector_of(value).storage_type != "i":
                vector = vector_of(value)
                yield vector.unique_id, vector.size_in_bytes
