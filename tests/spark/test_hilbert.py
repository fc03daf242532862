"""The curve itself: every point once, and neighbours along it are neighbours in space."""

from __future__ import annotations

import random

import pytest

from txlake.spark.hilbert import DIMENSIONS_MAX, walk

DIMENSIONS = pytest.mark.parametrize("dimensions", range(2, DIMENSIONS_MAX + 1))


def _point(coordinates: tuple[int, ...], bits: int) -> int:
    point = 0
    for bit in reversed(range(bits)):
        for one in reversed(coordinates):
            point = (point << 1) | ((one >> bit) & 1)
    return point


@DIMENSIONS
def test_neighbours_along_the_curve_are_neighbours_in_space(dimensions: int) -> None:
    """Around a random point: the places beside its own are those of points one step away."""
    steps = walk(dimensions)
    chance = random.Random(dimensions)
    size = 1 << steps.bits
    for _ in range(200):
        here = tuple(chance.randrange(size) for _ in range(dimensions))
        place = steps.place(_point(here, steps.bits), dimensions)
        assert 0 <= place < size**dimensions
        beside = {
            steps.place(
                _point((*here[:at], here[at] + by, *here[at + 1 :]), steps.bits), dimensions
            )
            for at in range(dimensions)
            for by in (-1, 1)
            if 0 <= here[at] + by < size
        }
        wanted = {place + by for by in (-1, 1) if 0 <= place + by < size**dimensions}
        assert wanted <= beside


def test_every_point_has_a_place_of_its_own() -> None:
    steps = walk(2)
    corner = range(64)
    places = {steps.place(_point((x, y), steps.bits), 2) for x in corner for y in corner}
    assert places == set(range(64 * 64))  # the first quarter of a quarter is walked first
