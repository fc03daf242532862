"""The Hilbert curve over 2 to 4 dimensions, as a table that is walked a few bits at a time.

A curve of finer grain consists of four (eight, sixteen) turned copies of itself. A state of the
walk is one of the turns, so a table from (state, bits of the point) to (bits of the place, next
state) describes the curve completely. Source: Hamilton, "Compact Hilbert Indices", Dalhousie
University CS-2006-07, section 2.3.
"""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass

DIMENSIONS_MAX = 4
# By the number of dimensions: the bits of each coordinate that count, and how many a step takes.
_BITS = {2: (10, 5), 3: (9, 3), 4: (8, 2)}


@dataclass(frozen=True, slots=True)
class Walk:
    """The tables that map a point to its place on the curve.

    A point is one number: its coordinates' bits interleaved, the highest first, within a level the
    last coordinate's first.

    Attributes:
        bits: how many bits each coordinate has.
        step_bits: how many bits of the point a step takes.
        state_bits: how many bits a state has; the walk begins in state 0.
        table: at (state, a step's bits of the point): (a step's bits of the place, next state).
    """

    bits: int
    step_bits: int
    state_bits: int
    table: tuple[int, ...]

    def place(self, point: int, dimensions: int) -> int:
        """Return a point's place on the curve; `dimensions` are those of the walk."""
        place = state = 0
        for shift in range(self.bits * dimensions - self.step_bits, -1, -self.step_bits):
            point_bits = (point >> shift) & ((1 << self.step_bits) - 1)
            entry = self.table[(state << self.step_bits) | point_bits]
            place = (place << self.step_bits) | (entry >> self.state_bits)
            state = entry & ((1 << self.state_bits) - 1)
        return place


@functools.cache
def walk(dimensions: int) -> Walk:
    """Return the walk of a curve over 2 to DIMENSIONS_MAX dimensions. Raises KeyError for
    others.
    """
    bits, levels = _BITS[dimensions]
    states = _states(dimensions)
    state_bits = (len(states) - 1).bit_length()
    mask = (1 << dimensions) - 1
    table = []
    for first in range(len(states)):
        for point_bits in range(1 << (dimensions * levels)):
            place, state = 0, first
            for level in reversed(range(levels)):
                digit, state = states[state][(point_bits >> (level * dimensions)) & mask]
                place = (place << dimensions) | digit
            table.append((place << state_bits) | state)
    return Walk(bits, dimensions * levels, state_bits, tuple(table))


def _states(dimensions: int) -> list[list[tuple[int, int]]]:
    """Return for each state and corner of a cube the corner's number on the curve, and next state.

    A state is the corner where the curve enters, and the direction in which it leaves.
    """
    corners = range(1 << dimensions)
    number_of = {_gray(number): number for number in corners}
    state_numbers = {(0, 0): 0}
    table: list[list[tuple[int, int]]] = []
    pending = deque(state_numbers)
    while pending:
        entry, direction = pending.popleft()
        row = []
        for corner in corners:
            turned = _turned(corner ^ entry, -(direction + 1), dimensions)
            number = number_of[turned]
            state = (
                entry ^ _turned(_entry(number), direction + 1, dimensions),
                (direction + _direction(number, dimensions) + 1) % dimensions,
            )
            if state not in state_numbers:
                state_numbers[state] = len(state_numbers)
                pending.append(state)
            row.append((number, state_numbers[state]))
        table.append(row)
    return table


def _gray(number: int) -> int:
    return number ^ (number >> 1)


def _turned(corner: int, by: int, dimensions: int) -> int:
    """Return the bits of a corner, rotated left by as many places; a negative number
    rotates right.
    """
    by %= dimensions
    return ((corner << by) | (corner >> (dimensions - by))) & ((1 << dimensions) - 1)


def _entry(number: int) -> int:
    """Return where the curve enters the corner with this number."""
    return 0 if number == 0 else _gray(2 * ((number - 1) // 2))


def _direction(number: int, dimensions: int) -> int:
    """Return the dimension along which the curve leaves the corner with this number."""
    if number == 0:
        return 0
    odd = number if number % 2 else number - 1
    return ((odd ^ (odd + 1)).bit_length() - 1) % dimensions
