"""The choice of the files that OPTIMIZE rewrites in a clustered table, and of their cubes.

The choice is Delta Spark's, so that neither engine has work left where the other has just
clustered: files that are in no cube, and small cubes of the table's clustering columns. A large
cube stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from txlake.protocol.actions import Add
from txlake.protocol.clustering import PROVIDER, Cube, cube_of
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.statistics import FileStatistics

CUBE_FILES_MIN = 100
"""The size, in files of the target size, from which a cube is large."""


@dataclass(frozen=True, slots=True)
class FileCount:
    """The number of some files, and their bytes."""

    number: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """The files that OPTIMIZE rewrites, and the counts of the files it chose from.

    Attributes:
        columns: the clustering columns.
        names: the same as SQL writes them.
        full: whether files of other columns, or of another engine's kind, are rewritten too.
        cubes: the files to rewrite; each tuple becomes one cube.
        in_cubes: the table's files in cubes of these columns; with `full`, of any columns.
        others: the table's other files.
        cubes_before: the number of cubes of the files `in_cubes`.
    """

    columns: tuple[Path, ...]
    names: tuple[str, ...]
    full: bool
    cubes: tuple[tuple[Add, ...], ...]
    in_cubes: FileCount
    others: FileCount
    cubes_before: int

    @property
    def files(self) -> tuple[Add, ...]:
        """All files to rewrite."""
        return tuple(add for cube in self.cubes for add in cube)


def plan_clustering(
    files: Iterable[Add], columns: Sequence[Path], *, full: bool, target_file_bytes: int
) -> ClusteringPlan:
    """Return the plan of an OPTIMIZE for a table that is clustered by these columns.

    Cubes below CUBE_FILES_MIN files of the target size are joined with unclustered files, into
    cubes of up to one and a half times that size. Nothing is rewritten if all the chosen files are
    one cube. With `full` files clustered by other columns, or by another engine, are rewritten too.
    """
    names = tuple(map(column_text, columns))
    large = CUBE_FILES_MIN * target_file_bytes
    every = sorted(((add, cube_of(add)) for add in files), key=_by_cube)
    fitting = [one for one in every if _fits(*one, names)]
    foreign = [one for one in every if not _fits(*one, names)]
    chosen = _without_large_cubes(fitting, large)
    if full and foreign:
        chosen += foreign
    elif _is_one_cube(chosen):
        chosen = []
    in_cubes = [one for one in every if one[1] and (full or one[1].columns == names)]
    others = [one for one in every if not one[1] or not (full or one[1].columns == names)]
    return ClusteringPlan(
        columns=tuple(columns),
        names=names,
        full=full,
        cubes=tuple(packed((add for add, _ in chosen), large * 3 // 2)),
        in_cubes=_count(in_cubes),
        others=_count(others),
        cubes_before=len({cube.id for _, cube in in_cubes if cube is not None}),
    )


_Filed = tuple[Add, Cube | None]


def _by_cube(one: _Filed) -> str:
    """Return the sort key by cube; files in no cube come first."""
    cube = one[1]
    return "" if cube is None else f" {cube.id}"


def _fits(add: Add, cube: Cube | None, names: tuple[str, ...]) -> bool:
    """Return whether a file is clustered by these columns, or not at all."""
    has_columns = cube is None or cube.columns == names
    return has_columns and add.clustering_provider in (None, PROVIDER)


def _is_one_cube(files: Sequence[_Filed]) -> bool:
    ids = {None if cube is None else cube.id for _, cube in files}
    return len(ids) == 1 and None not in ids


def _without_large_cubes(files: Sequence[_Filed], large: int) -> list[_Filed]:
    """Return the files that are in no cube, or in one with less than `large` live bytes."""
    sizes: dict[str, int] = {}
    for add, cube in files:
        if cube is not None:
            sizes[cube.id] = sizes.get(cube.id, 0) + _live_bytes(add)
    return [(add, cube) for add, cube in files if cube is None or sizes[cube.id] < large]


def _live_bytes(add: Add) -> int:
    """Return the part of a file's bytes that its live rows take: its share of the rows.

    All bytes without a deletion vector, or if the statistics don't state the number of rows.
    """
    vector = add.deletion_vector
    rows = FileStatistics.from_json(add.stats).num_records
    if vector is None or not rows:
        return add.size
    return int(add.size * (rows - vector.cardinality) / rows)


def packed(files: Iterable[Add], bytes_max: int) -> Iterator[tuple[Add, ...]]:
    """Yield the files in groups of at most `bytes_max`, in order; a larger file is alone."""
    current: list[Add] = []
    size = 0
    for add in files:
        if current and size + add.size > bytes_max:
            yield tuple(current)
            current, size = [], 0
        current.append(add)
        size += add.size
    if current:
        yield tuple(current)


def _count(files: Sequence[_Filed]) -> FileCount:
    return FileCount(len(files), sum(add.size for add, _ in files))
