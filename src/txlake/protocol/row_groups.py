"""Which row groups of a Parquet file hold values of a column, by its footer.

A checkpoint has each kind of action in columns of its own, which are null in all other rows. Row
groups without the wanted kind needn't be read. Source: the Parquet format's `parquet.thrift`
(Statistics, `null_count`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow.parquet as pq


class RowGroups:
    """The row groups of one file."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata
        schema = metadata.schema
        self._places = {schema.column(at).path: at for at in range(len(schema))}

    def holding(self, leaves: Iterable[str]) -> list[int]:
        """Return the numbers of the row groups in which one of these leaf columns may have a value.

        A row group is left out if the footer counts as many nulls as values in each of the columns
        that the file has.
        """
        places = [self._places[leaf] for leaf in leaves if leaf in self._places]
        return [
            group
            for group in range(self._metadata.num_row_groups)
            if any(self._may_hold(group, place) for place in places)
        ]

    def _may_hold(self, group: int, place: int) -> bool:
        column = self._metadata.row_group(group).column(place)
        facts = column.statistics
        known = facts is not None and facts.has_null_count
        return not known or facts.null_count != column.num_values


def rows_of(metadata: pq.FileMetaData, groups: Sequence[int]) -> int:
    """Return the number of rows in these row groups, as the footer has it."""
    return sum(metadata.row_group(group).num_rows for group in groups)
