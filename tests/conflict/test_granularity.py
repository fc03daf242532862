"""The names of what conflicts are found by."""

from __future__ import annotations

import pytest

from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.errors import InvalidRequest


@pytest.mark.parametrize("one", Granularity)
def test_each_is_known_by_its_name_in_any_case(one: Granularity) -> None:
    assert parse_granularity(f" {one.value.upper()} ") is one


def test_any_other_name_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(InvalidRequest, match="'page': expected one of row, file, table"):
        parse_granularity("page")


def test_the_coarsest_counts() -> None:
    assert coarsest(None, Granularity.FILE, Granularity.ROW) is Granularity.FILE
    assert coarsest(None) is Granularity.ROW
