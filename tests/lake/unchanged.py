"""What a refused statement must leave behind: nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import txlake
from tests.lake.rows import rows
from txlake.errors import TxlakeError


def files_below(folder: Path) -> set[str]:
    """Every file below a folder, log and data alike."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def newest(folder: Path) -> int:
    """The table's newest version, as its log says; -1 where there is none."""
    names = (path.stem for path in (folder / "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


@contextmanager
def refused(
    lake: txlake.Lake,
    folder: Path,
    kind: type[TxlakeError],
    *said: str,
    orphans: bool = False,
) -> Iterator[None]:
    """What runs inside raises just this error, whose message says all that; nothing changes.

    No new version, the same rows before and after, and no file more. With `orphans` data files
    that are in no version may be left.
    """
    before, version = rows(lake.read(str(folder))), newest(folder)
    files = files_below(folder)
    with pytest.raises(kind) as raised:
        yield
    assert type(raised.value) is kind
    for text in said:
        assert re.search(text, str(raised.value)), str(raised.value)
    assert newest(folder) == version
    assert rows(lake.read(str(folder))) == before
    new = files_below(folder) - files
    assert not {name for name in new if "_delta_log" in name}
    assert orphans or not new
