"""A smaller case that fails in the same way: fewer programs, fewer misfortunes.

Each step leaves something out and runs the case again; what still fails is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.case import Case, shape_of
from tests.simulation.world import Failure, World

_RUNS_MAX = 300


def failure_of(case: Case) -> Failure | None:
    """How a case fails, if it does."""
    try:
        World(case).run()
    except Failure as failure:
        return failure
    return None


def shrunk(failure: Failure, run: Callable[[Case], Failure | None] = failure_of) -> Failure:
    """The smallest failure of the same kind that was found from one."""
    smallest, runs = failure, 0
    is_smaller = True
    while is_smaller and runs < _RUNS_MAX:
        is_smaller = False
        for smaller in _smaller(smallest):
            runs += 1
            found = run(smaller)
            if found is not None and _is_alike(found, failure):
                smallest, is_smaller = found, True
                break
            if runs >= _RUNS_MAX:
                break
    return smallest


def _smaller(failure: Failure) -> Iterator[Case]:
    """What to try next, the largest steps first."""
    case = failure.case
    happened = {one.kind for one in failure.struck if not one.is_asked} - case.without_kinds
    if happened:
        yield replace(case, without_kinds=case.without_kinds | happened)
    clients = shape_of(case).plan.clients
    whole = shape_of(Case(case.seed)).plan.clients
    for place, client in enumerate(clients):
        if client:
            every = {(place, number) for number in range(len(whole[place]))}
            yield replace(case, without_programs=case.without_programs | every)
    for place, programs in enumerate(whole):
        for number in reversed(range(len(programs))):
            if (place, number) not in case.without_programs:
                yield replace(case, without_programs=case.without_programs | {(place, number)})
    for kind in sorted(happened, key=lambda one: one.name):
        yield replace(case, without_kinds=case.without_kinds | {kind})
    for fault in sorted(case.faults, key=str):
        yield replace(case, faults=case.faults - {fault})
    for one in failure.struck:
        if not one.is_asked:
            yield replace(case, without_numbers=case.without_numbers | {one.number})


def _is_alike(found: Failure, other: Failure) -> bool:
    """Whether it is the same promise that is broken: the kind of error, and how it begins."""
    return type(found.error) is type(other.error) and _gist(found) == _gist(other)


def _gist(failure: Failure) -> str:
    """The message without what changes with the case: names, numbers and rows."""
    words = str(failure.error).split()
    return " ".join(word for word in words if word.isalpha())[:60]
