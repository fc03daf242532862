"""A cache of whether files may hold rows that a read matches, by the first two tiers.

Every file is evaluated once for a read, and many files together: evaluating a hundred files costs
little more than one. A file that can't be evaluated may match. Source:
docs/how-a-commit-works.md, rule 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from txlake.conflict.footprint import Read
from txlake.errors import TxlakeError
from txlake.log.files import canonical_key, files_table
from txlake.log.predicates import Predicate
from txlake.log.skipping import may_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, FileKey


class MatchCache:
    """Results by read and file, and the files to evaluate along with the next ones."""

    def __init__(self) -> None:
        self._expected: list[Add] = []
        self._known: dict[int, _ReadMatches] = {}

    def prefetch(self, files: Iterable[Add]) -> None:
        """Add files to be evaluated along with the first file that each read is checked on."""
        self._expected.extend(files)

    def of(self, read: Read, files: Sequence[Add], base: Snapshot) -> list[bool]:
        """Return for each file whether it may hold a row that the read matches.

        True if the file can't be evaluated, or the read has no predicate. `base` has the schema of
        the read.
        """
        if read.predicate is None:
            return [True] * len(files)
        own = self._known.setdefault(id(read), _ReadMatches(read))
        keys = [canonical_key(file.key) for file in files]
        asked = zip(keys, files, strict=True)
        missing = {key: file for key, file in asked if own.lacks(key, file)}
        if missing:
            for file in self._expected[own.expected :]:
                missing.setdefault(canonical_key(file.key), file)
            own.expected = len(self._expected)
            judged = _evaluate(read.predicate, list(missing.values()), base)
            for (key, file), verdict in zip(missing.items(), judged, strict=True):
                own.files[key] = (file, verdict)
        return [own.files[key][1] for key in keys]


@dataclass(slots=True)
class _ReadMatches:
    """Results for one read; `expected`: how many of the prefetched files were evaluated."""

    read: Read
    files: dict[FileKey, tuple[Add, bool]] = field(default_factory=dict)
    expected: int = 0

    def lacks(self, key: FileKey, file: Add) -> bool:
        """Return whether the file, as it is listed now, wasn't evaluated yet."""
        known = self.files.get(key)
        return known is None or (known[0] is not file and known[0] != file)


def _evaluate(predicate: Predicate, files: list[Add], base: Snapshot) -> list[bool]:
    """Return for each file whether it may match; True for one whose values can't be read."""
    try:
        kept = may_match(predicate, files_table(files), base.schema, base.partition_columns)
    except TxlakeError:  # a partition value or a statistic that can't be read: doubt
        if len(files) == 1:
            return [True]
        return [one for file in files for one in _evaluate(predicate, [file], base)]
    verdicts: list[bool] = kept.to_pylist()
    return verdicts
