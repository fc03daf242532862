"""What a rewrite's tombstones tell other engines: where the rows of the removed files went.

Owns when the tags of `conflict.compaction_tags` can say it: for a file that kept all its live rows
together, in their order, in one output. txlake itself goes by the outputs' own tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from txlake.conflict.compaction_tags import COMPACTED_INTO, COMPACTION_INFO, compaction_tags
from txlake.conflict.positions import Run, tagged_runs
from txlake.errors import TxlakeError
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, Remove
from txlake.protocol.statistics import FileStatistics


def with_compaction_tags(removed: Sequence[Remove], added: Sequence[Add]) -> Iterator[Remove]:
    """Yield the tombstones of a commit; those of a rewrite say where its files' rows went.

    A tombstone has no such tags if that isn't recorded, or the tags can't express it: the rows were
    sorted or split, or others deleted some since they were read. Tags that it had are dropped then.
    """
    runs: dict[str, list[Run]] = {}
    for output in added:
        # The rows that others deleted meanwhile are in the output's vector, and not in the runs.
        for run in tagged_runs(output) if output.deletion_vector is None else ():
            runs.setdefault(canonical_path(run.source.path), []).append(run)
    for file in removed:
        own = {} if file.data_change else _tags(file, runs.get(canonical_path(file.path), []))
        kept = {key: text for key, text in (file.tags or {}).items() if key not in _NAMES}
        tags: dict[str, str | None] = {**kept, **own}
        is_same = file.data_change or tags == (file.tags or {})
        yield file if is_same else msgspec.structs.replace(file, tags=tags or None)


_NAMES = frozenset({COMPACTED_INTO, COMPACTION_INFO})


def _tags(file: Remove, runs: Sequence[Run]) -> dict[str, str]:
    """Return the tags of a removed file whose rows are in these runs; {} if they can't say it."""
    match runs:
        case [run] if run.source.positions_id is None and run.source.vector_id == file.key[1]:
            pass
        case _:
            return {}
    try:
        rows = FileStatistics.from_json(file.stats).num_records
    except TxlakeError:
        return {}
    vector = file.deletion_vector
    gone = 0 if vector is None else vector.cardinality
    if rows is None or run.source.first or run.source.rows != rows - gone:
        return {}
    return compaction_tags(run.output, offset=run.offset, rows=rows)
