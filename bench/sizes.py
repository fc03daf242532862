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
        few_rows: of the table of the size that most tables have; a multiple of `few_files`.
        few_files: the files that they are in.
        retail_scale: the scale factor of TPC-DS.
        retail_rounds: of refreshment, where its tables are maintained; at least five.
        many_tables: of one transaction.
        many_commits: on one table, one after the other; slower ones are a tenth as many.
        huge_files, huge_commits: of logs that have grown for years.
        lake_tables: of one lake.
        console_versions: of a table that the console shows.
        statements: of one session.
        month_commits: in 40 days of a clock that is set.
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
    few_rows: int = 2_000_000
    few_files: int = 20
    retail_scale: float = 1.0
    retail_rounds: int = 20
    many_tables: int = 200
    many_commits: int = 50_000
    huge_files: int = 10_000_000
    huge_commits: int = 1_000_000
    lake_tables: int = 1_000
    console_versions: int = 100_000
    statements: int = 100_000
    month_commits: int = 4_000

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
            "few": count(self.few_rows),
            "few_tenth": count(self.few_rows // 10),
            "few_hundredth": count(self.few_rows // 100),
            "retail_scale": f"{self.retail_scale:g}",
            "retail_rounds": str(self.retail_rounds),
            "many_tables": count(self.many_tables),
            "many_commits": count(self.many_commits),
            "replacements": count(self.many_commits // 10),
            "huge_files": count(self.huge_files),
            "huge_commits": count(self.huge_commits),
            "lake_tables": count(self.lake_tables),
            "console_versions": count(self.console_versions),
            "statements": count(self.statements),
        }


FULL = Sizes(20_000_000, 20, 5_000, 200_000, 1_000_000, 1.0)
QUICK = Sizes(
    2_000_000,
    20,
    500,
    20_000,
    100_000,
    0.1,
    queries=5,
    transactions=2_000,
    staged_files=1_000,
    few_rows=200_000,
    retail_scale=0.05,
    retail_rounds=5,
    many_tables=50,
    many_commits=1_000,
    huge_files=100_000,
    huge_commits=10_000,
    lake_tables=50,
    console_versions=1_000,
    statements=2_000,
    month_commits=400,
)
WARM_UP = Sizes(
    40_000,
    8,
    500,
    400,
    400,
    0.01,
    queries=8,
    transactions=160,
    staged_files=50,
    few_rows=40_000,
    few_files=20,
    retail_scale=0.01,
    retail_rounds=5,
    many_tables=4,
    many_commits=200,
    huge_files=2_000,
    huge_commits=100,
    lake_tables=5,
    console_versions=100,
    statements=200,
    month_commits=120,
)
"""What each process does everything on once before it is measured."""
