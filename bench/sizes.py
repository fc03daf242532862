"""How much data a run works on."""

from __future__ import annotations

from dataclasses import dataclass

from bench.amounts import count


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts of one run.

    Attributes:
        rows: of the large table; a multiple of `row_files` and of 1,000.
        row_files: the files that they are in.
        small_files: the files of the table of small files.
        log_files: the live files of the logs that are opened.
        large_log_files: the live files of the log that one partition is planned of.
        scale: the scale factor of TPC-H.
        queries: how many of its queries are run, from the first on.
        transactions: of threads that only ratify; slower works do a part of as many.
        staged_files: of a transaction that takes long to commit.
    """

    rows: int
    row_files: int
    small_files: int
    log_files: int
    large_log_files: int
    scale: float
    queries: int = 22
    transactions: int = 8_000
    staged_files: int = 2_000

    def words(self) -> dict[str, str]:
        """What the titles of works call the amounts by."""
        return {
            "rows": count(self.rows),
            "half": count(self.rows // 2),
            "tenth": count(self.rows // 10),
            "hundredth": count(self.rows // 100),
            "small_files": count(self.small_files),
            "log_files": count(self.log_files),
            "large_log_files": count(self.large_log_files),
            "scale": f"{self.scale:g}",
            "queries": str(self.queries),
            "staged_files": count(self.staged_files),
        }


FULL = Sizes(20_000_000, 20, 5_000, 200_000, 1_000_000, 1.0)
QUICK = Sizes(
    2_000_000, 20, 500, 20_000, 100_000, 0.1, queries=5, transactions=2_000, staged_files=1_000
)
WARM_UP = Sizes(40_000, 8, 500, 400, 400, 0.01, queries=8, transactions=160, staged_files=50)
"""What each process does everything on once before it is measured."""
